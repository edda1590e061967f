"""What the hot paths cost. Each module has a `main()` that measures and prints."""
