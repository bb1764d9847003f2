"""The dashboard: what waits and why, what is promised to whom, and what would happen if.

A small ASGI application over a copy of the cluster that informers keep current. It decides nothing: explanations come
from the engine, plans from a simulation in a process of its own, and what systems promise from their reports. Every
answer holds only what the caller may list.
"""
