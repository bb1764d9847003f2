"""The names of the placement controllers in the list of all, for who runs them apart, without importing them."""

from __future__ import annotations

PLACEMENT_CONTROLLERS = ("managedcluster", "managedclusterset", "managedclustersetbinding", "placement")
