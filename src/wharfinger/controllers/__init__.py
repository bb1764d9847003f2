"""The stock controllers: workloads, volumes, node lifecycle, quota and garbage collection.

Decisions are pure functions (`rules` and the like); controllers do the I/O through the client.
"""
