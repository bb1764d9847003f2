"""Builders for tests of reservations: nodes, pods and reservations with few words, and an engine that keeps the books."""

import json
from typing import Any

from wharfinger.api.views import Node, Pod, view
from wharfinger.engine import Engine, default_profile
from wharfinger.engine.outcome import Explanation
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.plugin.holding import ReservationHolding
from wharfinger.systems.reservation.plugin.ledger import ledger_of
from wharfinger.systems.reservation.rules.reservations import stand_in

DOMAIN = "scheduling.koordinator.sh"


def node(name: str, cpu: Any = 16, memory: str = "64Gi", pods: int = 110, more: Any = None, **labels: str) -> Node:
    room = {"cpu": str(cpu), "memory": memory, "pods": str(pods), **(more or {})}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
    return view({"metadata": metadata, "status": {"allocatable": room}}, Node)


def containers(requests: dict[str, Any], ports: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    written = {name: str(amount) for name, amount in requests.items()}
    made: dict[str, Any] = {"name": "c", "resources": {"requests": written}}
    if ports:
        made["ports"] = [{"containerPort": port, "hostPort": port, "protocol": "TCP"} for port in ports]
    return [made]


def pod(
    name: str,
    cpu: Any = None,
    *,
    labels: dict[str, str] | None = None,
    affinity: Any = None,
    annotations: dict[str, str] | None = None,
    requests: dict[str, Any] | None = None,
    ports: tuple[int, ...] = (),
    node_name: str = "",
    priority: int = 0,
    **spec: Any,
) -> Pod:
    asked = {**({} if cpu is None else {"cpu": cpu}), **(requests or {})}
    notes = dict(annotations or {})
    if affinity is not None:
        notes[f"{DOMAIN}/reservation-affinity"] = affinity if isinstance(affinity, str) else json.dumps(affinity)
    return view(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "labels": {"app": "web"} if labels is None else labels,
                "annotations": notes,
            },
            "spec": {"containers": containers(asked, ports), "nodeName": node_name, "priority": priority, **spec},
        },
        Pod,
    )


def outsider(name: str, cpu: Any = None, **options: Any) -> Pod:
    return pod(name, cpu, labels={"app": "other"}, **options)


def reservation(
    name: str,
    cpu: Any = None,
    *,
    on: str = "n1",
    phase: str = "Available",
    requests: dict[str, Any] | None = None,
    allocatable: dict[str, Any] | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    ports: tuple[int, ...] = (),
    template: dict[str, Any] | None = None,
    created: int = 0,
    uid: str = "",
    deleting: bool = False,
    **spec: Any,
) -> Reservation:
    asked = {**({} if cpu is None else {"cpu": cpu}), **(requests or {})}
    held = {name: str(amount) for name, amount in (allocatable or asked).items()}
    metadata = {
        "name": name,
        "uid": uid or f"uid-{name}",
        "creationTimestamp": f"2026-01-01T00:00:{created:02d}Z",
        "labels": labels or {},
        "annotations": annotations or {},
        **({"deletionTimestamp": "2026-01-01T01:00:00Z"} if deleting else {}),
    }
    body = {"labels": {"app": "web"}, "spec": {"containers": containers(asked, ports)}}
    made = {
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": body["spec"], **(template or {})},
        "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
        "allocateOnce": False,
        **spec,
    }
    status = {"phase": phase, "nodeName": on, "allocatable": held} if phase != "Pending" else {"phase": phase}
    return view({"metadata": metadata, "spec": made, "status": status}, Reservation)


class Books:
    """An engine; `place` schedules and assumes a pod and says on which node and out of which reservation."""

    def __init__(self, *objects: Any, **args: Any) -> None:
        self.engine = Engine([default_profile(args={"Reservation": args})], seed=1)
        self.ledger = ledger_of(self.engine.tables)
        self.add(*objects)

    def add(self, *objects: Any) -> None:
        for each in objects:
            if isinstance(each, Node):
                self.engine.set_node(each)
            elif isinstance(each, Reservation):
                self.engine.apply("Reservation", each)
            else:
                self.engine.set_pod(each)

    def drop(self, each: Any) -> None:
        if isinstance(each, Reservation):
            self.engine.apply("Reservation", each, deleted=True)
        else:
            self.engine.remove_pod(each.metadata.namespace, each.metadata.name)

    def place(self, pod: Pod) -> tuple[str, str]:
        decision = self.engine.schedule(pod)
        if decision.node is None:
            return "", decision.message
        status = self.engine.assume(pod, decision.node)
        if not status.ok:
            return "", status.message
        note = self.engine.annotations(pod, decision.node).get(f"{DOMAIN}/reservation-allocated")
        return decision.node, json.loads(note)["name"] if note else ""

    def book(self, wanted: Reservation) -> tuple[str, str]:
        """Schedules a reservation; the node and the phase it would get."""
        self.engine.apply("Reservation", wanted)
        item = stand_in(wanted)
        decision = self.engine.schedule(item)
        if decision.node is None:
            return "", decision.message
        self.engine.assume(item, decision.node)
        return decision.node, self.ledger.placements[item.metadata.key].phase

    def explain(self, pod: Pod) -> Explanation:
        return self.engine.explain(pod)

    def holding(self, name: str) -> ReservationHolding:
        return self.ledger.holdings[f"uid-{name}"]

    def free(self, node_name: str = "n1", resource: str = "cpu") -> int:
        """What an outsider sees."""
        tables = self.engine.tables
        number, row = tables.resources[resource], tables.row_of[node_name]
        return tables.allocatable[number].cells[row] - tables.requested[number].cells[row]
