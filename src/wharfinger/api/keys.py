"""The key type that identifies an object of a known kind."""

ObjectKey = tuple[str, str]
"""Namespace and name of an object; the namespace is empty for cluster-scoped kinds."""
