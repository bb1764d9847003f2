"""API groups that several systems share."""

from __future__ import annotations

SIGS = "scheduling.sigs.x-k8s.io"
"""Designs of the Kubernetes scheduling special interest group."""
