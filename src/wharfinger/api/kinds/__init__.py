"""The kinds we know: Kubernetes' own by family, and ours a file each. `registry()` makes a fresh registry of all of them."""
