"""Objects: what Kubernetes kinds and ours look like, and what their values mean.

Here live typed read views, exact quantities, selectors, names, times, the registry of kinds with their defaulting
and validation, and the manifest loader. Pure: nothing here does I/O, reads a clock, or knows of stores and servers.
"""
