"""The node side: simulated kubelets, and the device agent that speaks the kubelet's device-plugin API."""
