"""What the hot paths cost. The `main()` of each module measures and prints."""
