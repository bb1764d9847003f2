"""Taints and tolerations: the well-known taints, and which tolerations match which taints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

NO_SCHEDULE = "NoSchedule"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
NO_EXECUTE = "NoExecute"
EFFECTS = (NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE)

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
MEMORY_PRESSURE = "node.kubernetes.io/memory-pressure"
DISK_PRESSURE = "node.kubernetes.io/disk-pressure"
PID_PRESSURE = "node.kubernetes.io/pid-pressure"
NETWORK_UNAVAILABLE = "node.kubernetes.io/network-unavailable"

DAEMON_TOLERATIONS = (
    (NOT_READY, NO_EXECUTE),
    (UNREACHABLE, NO_EXECUTE),
    (DISK_PRESSURE, NO_SCHEDULE),
    (MEMORY_PRESSURE, NO_SCHEDULE),
    (PID_PRESSURE, NO_SCHEDULE),
    (UNSCHEDULABLE, NO_SCHEDULE),
)
"""Key and effect of the taints that every daemon pod tolerates (AddOrUpdateDaemonPodTolerations of upstream's
pkg/controller/daemon/util)."""
HOST_NETWORK_DAEMON_TOLERATION = (NETWORK_UNAVAILABLE, NO_SCHEDULE)
"""The one that daemon pods on the host network tolerate as well."""


class AnyTaint(Protocol):
    """A taint of a node, a reservation or a cluster."""

    @property
    def key(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def effect(self) -> str: ...


TaintT = TypeVar("TaintT", bound=AnyTaint)


class AnyToleration(AnyTaint, Protocol):
    """A toleration of a pod or a placement."""

    @property
    def operator(self) -> str: ...


def tolerates(toleration: AnyToleration, taint: AnyTaint) -> bool:
    """Toleration.ToleratesTaint of k8s.io/api/core/v1."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    # Lt and Gt are behind an alpha feature gate that is off by default; they match no taint.
    return toleration.operator == "Exists"


def any_tolerates(tolerations: Iterable[AnyToleration], taint: AnyTaint) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def taint_text(taint: AnyTaint) -> str:
    """As `kubectl taint` writes it: `key=value:effect`, or `key:effect` without a value."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def has_untolerated_taint(
    tolerations: Sequence[AnyToleration],
    taints: Iterable[AnyTaint],
    effects: Sequence[str] = (NO_SCHEDULE, NO_EXECUTE),
) -> bool:
    """Whether a taint of one of the effects is not tolerated; by default, those that keep a pod off a node."""
    return any(taint.effect in effects and not any_tolerates(tolerations, taint) for taint in taints)


def untolerated_taints(tolerations: Sequence[AnyToleration], taints: Iterable[TaintT]) -> list[TaintT]:
    """The taints that keep a pod with these tolerations off a node."""
    return [
        taint for taint in taints if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not any_tolerates(tolerations, taint)
    ]
