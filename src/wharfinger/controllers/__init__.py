"""Reconcilers, one a file, as asyncio tasks over the client: workloads, garbage collection, quotas, and our systems'."""
