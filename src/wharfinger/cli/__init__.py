"""What a person touches: the `wharf` command."""
