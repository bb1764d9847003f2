"""The names of our kinds: a `Resource` constant for each, in its storage version."""

from __future__ import annotations

from wharfinger.api.registry import Resource

SIGS = "scheduling.sigs.x-k8s.io"
KOORDINATOR = "scheduling.koordinator.sh"
OCM = "cluster.open-cluster-management.io"

RESOURCE_POLICIES = Resource(SIGS, "v1alpha1", "resourcepolicies", "ResourcePolicy")
SCHEDULING_POLICIES = Resource(SIGS, "v1alpha1", "schedulingpolicies", "SchedulingPolicy", namespaced=False)
RESOURCE_CLASSES = Resource(SIGS, "v1alpha1", "resourceclasses", "ResourceClass", namespaced=False)
NODE_COMPUTE_RESOURCES = Resource(SIGS, "v1alpha1", "nodecomputeresources", "NodeComputeResources", namespaced=False)

RESERVATIONS = Resource(KOORDINATOR, "v1alpha1", "reservations", "Reservation", namespaced=False)
POD_MIGRATION_JOBS = Resource(KOORDINATOR, "v1alpha1", "podmigrationjobs", "PodMigrationJob", namespaced=False)
RESERVATION_SETS = Resource("wharfinger.dev", "v1alpha1", "reservationsets", "ReservationSet", namespaced=False)

MANAGED_CLUSTERS = Resource(OCM, "v1", "managedclusters", "ManagedCluster", namespaced=False)
MANAGED_CLUSTER_SETS = Resource(OCM, "v1beta2", "managedclustersets", "ManagedClusterSet", namespaced=False)
MANAGED_CLUSTER_SET_BINDINGS = Resource(OCM, "v1beta2", "managedclustersetbindings", "ManagedClusterSetBinding")
PLACEMENTS = Resource(OCM, "v1beta1", "placements", "Placement")
PLACEMENT_DECISIONS = Resource(OCM, "v1beta1", "placementdecisions", "PlacementDecision")
ADDON_PLACEMENT_SCORES = Resource(OCM, "v1alpha1", "addonplacementscores", "AddOnPlacementScore")
