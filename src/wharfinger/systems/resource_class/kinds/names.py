"""The `Resource` of each kind of this system, in its storage version."""

from __future__ import annotations

from wharfinger.api.groups import SIGS
from wharfinger.api.registry import Resource

RESOURCE_CLASSES = Resource(SIGS, "v1alpha1", "resourceclasses", "ResourceClass", namespaced=False)
NODE_COMPUTE_RESOURCES = Resource(SIGS, "v1alpha1", "nodecomputeresources", "NodeComputeResources", namespaced=False)
