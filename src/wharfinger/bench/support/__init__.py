"""The measurements of benchmarks, separate from the commands that print them."""
