"""One module for each screen: pure functions from what the caller may see to a JSON document."""
