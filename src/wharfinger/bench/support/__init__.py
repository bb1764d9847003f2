"""What the benchmarks measure, apart from the commands that print it."""
