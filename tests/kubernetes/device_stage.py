"""Worlds of devices on a real API server: their objects are created and deleted, and what a scheduler made of them is read."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.device_worlds import Changes, DeviceWorld
from tests.kubernetes.manifests import Document, condition

from wharfinger.api.quantity import parse_nano
from wharfinger.api.views import Node, Pod, view
from wharfinger.engine import Engine, default_profile

RESOURCES = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Namespace": "/api/v1/namespaces",
    **{
        kind: f"/apis/resource.k8s.io/v1/{plural}"
        for kind, plural in (
            ("DeviceClass", "deviceclasses"),
            ("DeviceTaintRule", "devicetaintrules"),
            ("ResourceSlice", "resourceslices"),
            ("ResourceClaim", "namespaces/{}/resourceclaims"),
            ("ResourceClaimTemplate", "namespaces/{}/resourceclaimtemplates"),
        )
    },
}
ALL_PODS, ALL_CLAIMS = "/api/v1/pods", "/apis/resource.k8s.io/v1/resourceclaims"
OBSERVED = ("DeviceClass", "DeviceTaintRule", "ResourceSlice")
BEING_ALLOCATED = "is in the process of being allocated"  # for another pod: this one is tried again when that is done
PATIENCE = 120.0  # seconds; a pod that nothing wakes is retried after 300


class Seen:
    """Pods and claims of all worlds at a moment, by namespace and name."""

    def __init__(self, pods: Iterable[Document], claims: Iterable[Document]) -> None:
        self.pods = {key(each): each for each in pods}
        self.claims = {key(each): each for each in claims}

    def claims_of(self, pod: Document) -> dict[str, Document | None]:
        """The claims of a pod by the name that it uses; None for those that are missing."""
        space, status = pod["metadata"]["namespace"], pod.get("status") or {}
        made = {each["name"]: each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()}
        names = {
            each["name"]: each.get("resourceClaimName") or made.get(each["name"], "")
            for each in pod["spec"].get("resourceClaims") or ()
        }
        extended = status.get("extendedResourceClaimStatus")
        if extended:
            names["<extended>"] = extended["resourceClaimName"]
        return {entry: self.claims.get((space, name)) for entry, name in names.items()}

    def waiting(self) -> str:
        """The pods without a node, and why."""
        pods = [(name, pod) for name, pod in self.pods.items() if not pod["spec"].get("nodeName")]
        return "\n".join(f"{name}: {condition(pod, 'PodScheduled').get('message')}" for name, pod in pods)

    def outcome(self, pod: Document) -> Document | None:
        """What became of a pod; None as long as it was not tried."""
        node = pod["spec"].get("nodeName")
        if not node:
            told = condition(pod, "PodScheduled")
            message = re.sub(r"\b(p\d\d-c\d)-[a-z0-9]{5}\b", r"\1", told.get("message", ""))
            if told.get("reason") == "SchedulerError":  # of one of the nodes, whichever was first
                message = re.sub(r"device \S+/w\d+-n\d/\S+", "a device", message)
            if told.get("reason") not in ("Unschedulable", "SchedulerError") or BEING_ALLOCATED in message:
                return None
            return {"pending": message}
        devices = {
            entry: None if claim is None else comparable(claim["status"].get("allocation"))
            for entry, claim in self.claims_of(pod).items()
        }
        extended = (pod["status"].get("extendedResourceClaimStatus") or {}).get("requestMappings")
        return {"node": node, "devices": devices, "mappings": extended}


def key(document: Document) -> tuple[str, str]:
    return document["metadata"].get("namespace", ""), document["metadata"]["name"]


def comparable(allocation: Document | None) -> Document | None:
    """An allocation without what is different every time."""
    if allocation is None:
        return None
    results = [
        {**each, **({"shareID": "any"} if "shareID" in each else {})}
        for each in allocation["devices"].get("results") or ()
    ]
    made = {name: value for name, value in allocation.items() if name != "allocationTimestamp"}
    return {**made, "devices": {**allocation["devices"], "results": results}}


class DeviceStage:
    def __init__(self, cluster: Cluster, worlds: Sequence[DeviceWorld]) -> None:
        self._api = cluster.api()
        self.worlds = worlds

    # -- writing

    def create(self, document: Document) -> None:
        kind = document["kind"]
        path = RESOURCES[kind].format(document["metadata"].get("namespace", ""))
        if kind == "Namespace" and self._api.ask("GET", f"{path}/{document['metadata']['name']}").status == 200:
            return
        self._api.create(path, document)
        if kind == "Node":  # the server drops the status of a new one only for kinds with a strategy that says so
            self._update(f"{path}/{document['metadata']['name']}", document, "/status")

    def _update(self, path: str, document: Document, subresource: str = "") -> None:
        stored = self._api.get(path)
        changed = {**stored, **{part: document[part] for part in ("spec", "status") if part in document}}
        answer = self._api.ask("PUT", path + subresource, changed)
        assert answer.status == 200, answer.data

    def delete(self, kind: str, name: str, space: str) -> None:
        answer = self._api.ask("DELETE", f"{RESOURCES[kind].format(space)}/{name}")
        assert answer.status in (200, 202, 404), answer.data

    def carry_out(self, changes: Changes, space: str) -> None:
        for kind, name in changes.deleted:
            self.delete(kind, name, space)
        for document in changes.published:
            self._update(f"{RESOURCES['ResourceSlice']}/{document['metadata']['name']}", document)
        for document in changes.created:
            self.create(document)

    def set_up(self) -> None:
        for world in self.worlds:
            self.create(world.namespace())
            for document in world.setup():
                self.create(document)

    def wipe(self) -> None:
        """Deletes all that the worlds have; namespaces stay."""
        for world in self.worlds:
            for kind in ("Pod", "ResourceClaim", "ResourceClaimTemplate"):
                self._api.ask("DELETE", RESOURCES[kind].format(world.space))
        for kind in (*OBSERVED, "Node"):
            self._api.ask("DELETE", RESOURCES[kind])
        self.until(lambda seen: not seen.pods and not seen.claims, "all pods and claims are gone")

    # -- reading

    def seen(self) -> Seen:
        spaces = {world.space for world in self.worlds}
        found = [
            [each for each in self._api.get(path)["items"] if each["metadata"]["namespace"] in spaces]
            for path in (ALL_PODS, ALL_CLAIMS)
        ]
        return Seen(*found)

    def until(self, holds: Callable[[Seen], object], what: str, names: Iterable[object] = ()) -> Seen:
        """`names` follow `what` in the message."""
        end = time.monotonic() + PATIENCE
        while True:
            seen = self.seen()
            if holds(seen):
                return seen
            assert time.monotonic() < end, f"after {PATIENCE:.0f} s still not: {what} {[*names]}\n{seen.waiting()}"
            time.sleep(0.05)

    def engine(self, seen: Seen) -> Engine:
        """Our decisions for the cluster as it is, without anything live."""
        engine = Engine([default_profile()])
        engine.tables.clock = time.time
        for document in self._api.get(RESOURCES["Node"])["items"]:
            engine.set_node(view(document, Node))
        for kind in OBSERVED:
            for document in self._api.get(RESOURCES[kind])["items"]:
                engine.apply(kind, document)
        for document in seen.claims.values():
            engine.apply("ResourceClaim", document)
        for document in seen.pods.values():
            engine.set_pod(view(document, Pod))
        return engine

    def settled(self, *, kept: bool = False) -> Seen:
        """The cluster when nothing is left to do: claims of ended pods are released, every pod was tried, and those that are
        pending cannot be scheduled. `kept` says that claims may have devices for pods that are pending, which is so after
        failed bindings."""
        fits: list[tuple[str, str]] = []

        def at_rest(seen: Seen) -> bool:
            # Asked anew each time: of pods that want the same device, one gets it, and the others no longer fit.
            tried = self.all_tried(seen, kept=kept)
            fits[:] = self.schedulable(seen) if tried else []
            return tried and not fits

        return self.until(at_rest, "every pod was tried, no claim has devices in vain, and none of these fits:", fits)

    def schedulable(self, seen: Seen) -> list[tuple[str, str]]:
        pending = [name for name, pod in seen.pods.items() if not pod["spec"].get("nodeName")]
        if not pending:
            return []
        engine = self.engine(seen)
        return [name for name in pending if engine.schedule(view(seen.pods[name], Pod)).node]

    def all_tried(self, seen: Seen, *, kept: bool = False) -> bool:
        pending = [pod for pod in seen.pods.values() if not pod["spec"].get("nodeName")] if kept else []
        wanted = {key(claim) for pod in pending for claim in seen.claims_of(pod).values() if claim is not None}
        if any(seen.outcome(pod) is None for pod in seen.pods.values()):
            return False
        alive = {pod["metadata"]["uid"] for pod in seen.pods.values()}
        for claim in seen.claims.values():
            status = claim.get("status") or {}
            users = {each["uid"] for each in status.get("reservedFor") or ()}
            owners = {each["uid"] for each in claim["metadata"].get("ownerReferences") or ()}
            if users - alive or owners - alive:
                return False
            if status.get("allocation") and not users and key(claim) not in wanted:
                return False
        return True

    # -- what must always hold

    def given_twice(self, seen: Seen, slices: Sequence[Document]) -> list[str]:
        """Devices that claims have beyond what there is: the device itself, its capacity, or its counters."""
        whole: Counter[tuple[str, ...]] = Counter()
        taken: Counter[tuple[str, ...]] = Counter()
        used: set[tuple[str, ...]] = set()
        for claim in seen.claims.values():
            allocation = (claim.get("status") or {}).get("allocation") or {"devices": {}}
            for each in allocation["devices"].get("results") or ():
                device = (each["driver"], each["pool"], each["device"])
                if each.get("adminAccess"):
                    continue
                used.add(device)
                if "shareID" not in each:
                    whole[device] += 1
                for name, amount in (each.get("consumedCapacity") or {}).items():
                    taken[(*device, name)] += parse_nano(amount)
        found = [f"{device} is given {count} times" for device, count in whole.items() if count > 1]
        for document in slices:
            spec = document["spec"]
            pool = (spec["driver"], spec["pool"]["name"])
            for device in spec.get("devices") or ():
                for name, capacity in (device.get("capacity") or {}).items():
                    if taken[(*pool, device["name"], name)] > parse_nano(capacity["value"]):
                        found.append(f"too much {name} of {pool} {device['name']}")
            for each in spec.get("sharedCounters") or ():
                found += _overdrawn(each, pool, slices, used)
        return found

    def slices(self) -> list[Document]:
        found: list[Document] = self._api.get(RESOURCES["ResourceSlice"])["items"]
        return found

    def bound_without_devices(self, seen: Seen) -> list[str]:
        """Bound pods whose claims have no devices, or are not reserved for them."""
        found = []
        for name, pod in seen.pods.items():
            if pod["spec"].get("nodeName"):
                for entry, claim in seen.claims_of(pod).items():
                    status: Mapping[str, Any] = {} if claim is None else claim.get("status") or {}
                    users = [each["uid"] for each in status.get("reservedFor") or ()]
                    if not status.get("allocation") or pod["metadata"]["uid"] not in users:
                        found.append(f"{name}: {entry}")
        return found


def _overdrawn(
    counter_set: Document, pool: tuple[str, ...], slices: Sequence[Document], used: set[tuple[str, ...]]
) -> list[str]:
    left = {name: parse_nano(each["value"]) for name, each in counter_set["counters"].items()}
    for document in slices:
        spec = document["spec"]
        if (spec["driver"], spec["pool"]["name"]) != pool:
            continue
        for device in spec.get("devices") or ():
            if (*pool, device["name"]) in used:
                for consumed in device.get("consumesCounters") or ():
                    if consumed["counterSet"] == counter_set["name"]:
                        for name, each in consumed["counters"].items():
                            left[name] -= parse_nano(each["value"])
    return [f"counter {name} of {pool} is overdrawn" for name, amount in left.items() if amount < 0]
