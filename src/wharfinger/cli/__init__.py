"""The `wharf` command: it reads input, calls the layers below, and prints the result. No scheduling logic lives here."""
