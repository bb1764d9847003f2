"""StatefulSets: pods with an ordinal and claims of their own. `rules` and `claims` decide, `controller` does the I/O."""
