"""The node side of devices: speaks the kubelet's device plugin API, publishes devices as ComputeResources, and allocates the
devices that the scheduler recorded."""
