"""Deployments: rolling updates over ReplicaSets. `rules` decides, `controller` does the I/O."""
