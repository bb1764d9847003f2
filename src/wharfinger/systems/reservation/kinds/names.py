"""The resources of this system, each in its storage version."""

from __future__ import annotations

from wharfinger.api.registry import Resource

KOORDINATOR = "scheduling.koordinator.sh"
RESERVATIONS = Resource(KOORDINATOR, "v1alpha1", "reservations", "Reservation", namespaced=False)
POD_MIGRATION_JOBS = Resource(KOORDINATOR, "v1alpha1", "podmigrationjobs", "PodMigrationJob", namespaced=False)
RESERVATION_SETS = Resource("wharfinger.dev", "v1alpha1", "reservationsets", "ReservationSet", namespaced=False)
REPACK_POLICIES = Resource("wharfinger.dev", "v1alpha1", "repackpolicies", "RepackPolicy", namespaced=False)
CAPACITY_BUFFERS = Resource("autoscaling.x-k8s.io", "v1beta1", "capacitybuffers", "CapacityBuffer")
