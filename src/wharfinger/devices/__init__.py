"""Dynamic resource allocation: which devices a node offers, and which of them the claims of a pod get. Pure.

    slices      devices as ResourceSlices publish them, with the taints of DeviceTaintRules
    pools       the pools of a node: newest generation, complete, valid
    claims      what claims ask for, and what their status says
    pod_claims  which claims belong to a pod, and claims from templates
    classes     device classes, and the extended resources that they serve
    selectors   the CEL expressions that select devices
    expression_cost  what a selector costs at most
    capacity    consumable capacity
    constraints attributes that the devices of a claim must share, or must not share
    usage       the devices in use
    allocator   the search for devices
    held_record which devices an object holds for pods to come
    results     an allocation as it is written to the status of a claim

The rules are those of Kubernetes 1.37 with default feature gates: the `incubating` allocator of
k8s.io/dynamic-resource-allocation/structured. Who calls this is in `plugins/dynamic_resources`.
"""
