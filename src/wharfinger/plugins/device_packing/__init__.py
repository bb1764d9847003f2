"""Plugins that pack pods onto nodes with devices of which pods take shares: they score nodes, and the devices of a node.

The rules are over arrays, so that the scheduler and `wharf replay`, which runs them over whole traces, share them.
"""
