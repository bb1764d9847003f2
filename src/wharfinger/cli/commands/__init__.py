"""One module for each subcommand. Expensive imports are inside the functions, so that `wharf --help` is fast."""
