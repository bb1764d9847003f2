"""The invariants, one class each. An invariant reads the plain history and nothing of what it checks."""
