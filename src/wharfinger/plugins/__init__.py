"""Scheduling plugins, one file each: the stock Kubernetes ones and ours. Pure, over the framework's tables."""
