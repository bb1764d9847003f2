"""What a scheduling plugin is: cluster tables, pod shapes, statuses and reasons, extension points.

The engine and the plugins both build on this. Pure: no I/O, no clock, no global randomness.
"""
