"""The resources of this system, each in its storage version."""

from __future__ import annotations

from wharfinger.api.groups import SIGS
from wharfinger.api.registry import Resource

RESOURCE_POLICIES = Resource(SIGS, "v1alpha1", "resourcepolicies", "ResourcePolicy")
