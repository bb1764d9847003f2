"""Profiles: which groups of operations and faults take part in a history, and how large the cluster is."""

from __future__ import annotations

from dataclasses import dataclass

OPERATIONS = (
    "pods",
    "workloads",
    "nodes",
    "volumes",
    "reservations",
    "policies",
    "devices",
    "admission",
    "placement",
    "quota",
    "claims",
)
FAULTS = ("requests", "watches", "processes", "leaders", "starts", "nodes", "hands", "agents", "webhook")


@dataclass(frozen=True, slots=True)
class FuzzProfile:
    name: str
    description: str
    operations: frozenset[str] = frozenset(OPERATIONS)
    faults: frozenset[str] = frozenset(FAULTS)
    nodes: tuple[int, int] = (1, 8)  # how many there are at the start
    cpus: tuple[int, int] = (2, 8)  # of a node
    pods: tuple[int, int] = (0, 8)
    residents: int = 0  # further pods at the start, which ask for nothing special
    most_pods: int = 40  # above this, pods are deleted rather than created
    rest_every: int = 150  # steps, on average: then everything is checked, which takes the longer the more there is
    standby: bool = False  # whether two schedulers take part in a leader election from the start
    rates: tuple[float, ...] = (0.003, 0.01, 0.03)  # of which the probability of each kind of fault is drawn


def _profile(name: str, description: str, operations: str = "", faults: str = "", **sizes: object) -> FuzzProfile:
    chosen = {
        "operations": frozenset(operations.split() or OPERATIONS),
        "faults": frozenset(() if faults == "none" else faults.split() or FAULTS),
        **sizes,
    }
    return FuzzProfile(name, description, **chosen)  # type: ignore[arg-type]  # only sizes are passed on


_SCHEDULING = "pods workloads nodes volumes reservations policies devices claims"
_OFTEN = (0.01, 0.03, 0.08)  # where few kinds of faults take part

PROFILES = {
    each.name: each
    for each in (
        _profile("default", "small clusters, all operations, all faults"),
        _profile(
            "large",
            "50 nodes and 300 pods, all operations, all faults",
            nodes=(50, 50),
            cpus=(8, 16),
            residents=300,
            most_pods=320,
            rest_every=600,
        ),
        _profile("calm", "all operations, no faults", faults="none"),
        _profile(
            "scheduling",
            "pods, nodes, volumes, reservations and policies",
            _SCHEDULING,
        ),
        _profile(
            "leaders",
            "crashes, pauses and two leaders",
            _SCHEDULING,
            "processes leaders starts requests watches hands",
            standby=True,
            rates=_OFTEN,
        ),
        _profile("requests", "lost and failing requests", faults="requests", rates=_OFTEN),
        _profile("watches", "late, broken and stale watches", faults="watches", rates=_OFTEN),
        _profile(
            "tenants",
            "admission and quota",
            "pods workloads nodes admission quota devices",
            "requests watches hands webhook",
        ),
        _profile("claims", "claims of volumes and devices", "pods volumes claims", "requests processes starts hands"),
        _profile("placement", "the hub of several clusters", "placement", "requests watches processes agents"),
    )
}
