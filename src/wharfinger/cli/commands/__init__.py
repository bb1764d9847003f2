"""One file for each subcommand. Heavy imports stand inside the functions, so that `wharf --help` stays quick."""
