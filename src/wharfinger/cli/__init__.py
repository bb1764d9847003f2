"""What a person touches: the `wharf` command. It reads input, asks the layers below, and prints; nothing is decided here."""
