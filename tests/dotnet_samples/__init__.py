"""Real message bodies as test data: C# programs that write them, and what compiles and runs these."""
