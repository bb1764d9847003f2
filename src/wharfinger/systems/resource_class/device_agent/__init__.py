"""The node side of devices: the kubelet's device-plugin API, what plugins tell as ComputeResources, and the allocation of
devices as the scheduler recorded it."""
