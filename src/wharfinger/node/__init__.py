"""Simulated kubelets: many nodes in one process, which run pods in name only. What a pod does next is decided purely
in `lifecycle`; everything a kubelet must remember stands in the API server."""
