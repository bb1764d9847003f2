"""Installing Wharfinger on a real cluster and removing it: the components, their manifests and roles, what the cluster
has already, and the removal."""
