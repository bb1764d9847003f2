"""Kubernetes objects: read views, quantities, selectors, names, times, schemas, and the registry of kinds with their
defaulting and validation.

Pure: nothing here does I/O or reads a clock, and nothing knows about stores and servers.
"""
