"""What nodes to add, what nodes to remove, and what fits; see README.md."""
