"""Simulated kubelets: any number of nodes in one process, whose pods run in name only.

`lifecycle` decides what happens to a pod next and is pure; all state is in the API server.
"""
