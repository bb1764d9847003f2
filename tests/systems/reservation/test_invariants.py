"""Over random histories of reservations, pods, expiries, failed and slow bindings and restarts: what is reserved is never
given to another pod, not for an instant, and no node is ever over-committed. Checked after every single write."""

import asyncio
import json
import random
from typing import Any

import pytest

from wharfinger.api.configuration import Configuration
from wharfinger.api.errors import ApiError
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.quantity import parse_nano
from wharfinger.api.resources import requests_nano
from wharfinger.api.views import Pod, view
from wharfinger.scenario import applying
from wharfinger.scenario.document import ScenarioFault
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.rules.owners import compile_owners, owned_by
from wharfinger.systems.reservation.rules.reservations import allocation_of
from wharfinger.systems.reservation.settings import ReservationSettings

START = 1767225600.0
NODES = {
    "n1": {"cpu": 8, "memory": 16 << 30},
    "n2": {"cpu": 6, "memory": 8 << 30},
    "n3": {"cpu": 4, "memory": 32 << 30},
}
NANO = 1_000_000_000
APPS = ("a", "b", "c")


class History:
    """Every state of pods and reservations in the order of writes, from two watches."""

    def __init__(self, world: SimulatedCluster) -> None:
        self._world = world
        self.events: list[tuple[int, str, str, Any]] = []

    async def follow(self, resource: Any, kind: type[Any]) -> None:
        client = self._world.client("", lambda warning: None)
        version = str(self._world.store.version)
        async for event in client.watch(resource, view=kind, resource_version=version):
            if event.object is not None:
                key = event.object.metadata.namespace + "/" + event.object.metadata.name
                self.events.append((int(event.resource_version), event.type.value, key, event.object))

    def check(self) -> int:
        pods: dict[str, Pod] = {}
        reservations: dict[str, Reservation] = {}
        used = 0
        for _, change, key, item in sorted(self.events, key=lambda event: event[0]):
            state: dict[str, Any] = pods if isinstance(item, Pod) else reservations
            before = state.get(key)
            if change == "DELETED":
                state.pop(key, None)
            else:
                state[key] = item
            if isinstance(item, Pod) and item.spec.node_name and (before is None or not before.spec.node_name):
                used += self._check_binding(item, reservations)
            self._check_nodes(pods, reservations)
        return used

    def _check_binding(self, pod: Pod, reservations: dict[str, Reservation]) -> int:
        record = allocation_of(pod.metadata)
        if record is None:
            return 0
        found = next((each for each in reservations.values() if each.metadata.uid == record.uid), None)
        if found is None:
            return 0  # deleted while the pod was being bound
        assert found.metadata.name == record.name
        assert owned_by(compile_owners(found.spec.owners), pod), f"{pod.metadata.name} took {record.name}"
        assert found.status.node_name == pod.spec.node_name
        return 1

    def _check_nodes(self, pods: dict[str, Pod], reservations: dict[str, Reservation]) -> None:
        for node, room in NODES.items():
            total = dict.fromkeys(room, 0)
            taken: dict[str, dict[str, int]] = {}
            for pod in pods.values():
                if pod.spec.node_name == node and not pod.terminal:
                    record = allocation_of(pod.metadata)
                    for name, amount in requests_nano(pod).items():
                        total[name] += amount
                        if record is not None:
                            part = taken.setdefault(record.uid, {})
                            part[name] = part.get(name, 0) + amount
            for each in reservations.values():
                if each.status.node_name == node and each.phase == "Available":
                    for name, quantity in each.status.allocatable.items():
                        left = parse_nano(quantity) - taken.get(each.metadata.uid, {}).get(name, 0)
                        total[name] += max(left, 0)
            for name, amount in total.items():
                assert amount <= room[name] * NANO, f"{node} holds {amount / NANO} of {room[name]} {name}"


def node(name: str) -> dict[str, Any]:
    room = {"cpu": str(NODES[name]["cpu"]), "memory": str(NODES[name]["memory"]), "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": room, "capacity": room},
    }


class Chance:
    """Makes documents."""

    def __init__(self, source: random.Random) -> None:
        self.source = source
        self._count = 0

    def containers(self, most: int) -> list[dict[str, Any]]:
        source = self.source
        requests = {"cpu": f"{source.randint(1, most * 4) * 250}m"}
        if source.random() < 0.5:
            requests["memory"] = f"{source.randint(1, 6)}Gi"
        return [{"name": "c", "image": "x", "resources": {"requests": requests}}]

    def pod(self) -> dict[str, Any]:
        self._count += 1
        source = self.source
        annotations = {}
        if source.random() < 0.3:
            annotations["scheduling.koordinator.sh/reservation-affinity"] = source.choice(["", "{}"])
        if source.random() < 0.1:  # forged, and meaningless
            annotations["scheduling.koordinator.sh/reservation-allocated"] = json.dumps({"name": "r1", "uid": "x"})
        spec: dict[str, Any] = {"containers": self.containers(3)}
        if source.random() < 0.2:
            spec["priorityClassName"] = "high"
        metadata = {
            "name": f"p{self._count}",
            "namespace": "default",
            "labels": {"app": source.choice(APPS)},
            "annotations": annotations,
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def reservation(self, name: str = "") -> dict[str, Any]:
        self._count += 1
        source = self.source
        app = source.choice(APPS)
        spec: dict[str, Any] = {
            "template": {"metadata": {"labels": {"app": app}}, "spec": {"containers": self.containers(5)}},
            "owners": [{"labelSelector": {"matchLabels": {"app": app}}}],
            "allocateOnce": source.random() < 0.4,
            "preAllocation": source.random() < 0.25,
            "ttl": source.choice(["30s", "2m", "1h"]),
        }
        policy = source.choice(["", "Aligned", "Restricted"])
        if policy:
            spec["allocatePolicy"] = policy
        if policy == "Restricted" and source.random() < 0.3:
            spec |= {"preAllocation": True, "preAllocationPolicy": {"enableMultiple": source.random() < 0.5}}
        return {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": name or f"r{self._count}"},
            "spec": spec,
        }


async def act(world: SimulatedCluster, chance: Chance) -> None:
    source, client = chance.source, world.client("", lambda warning: None)
    roll = source.random()
    pods = [each["metadata"]["name"] for each in world.objects(PODS)]
    names = [each["metadata"]["name"] for each in world.objects(RESERVATIONS)]
    if roll < 0.38:
        await applying.apply(client, chance.pod(), world.registry)
    elif roll < 0.58:
        await applying.apply(client, chance.reservation(), world.registry)
    elif roll < 0.68 and pods:
        await client.delete(PODS, source.choice(pods), "default", grace_period=source.choice([0, 5]))
    elif roll < 0.73 and names:
        await client.delete(RESERVATIONS, source.choice(names))
    elif roll < 0.80 and names:
        name = source.choice(names)
        before = (await client.get(RESERVATIONS, name))["spec"]["template"]
        template = chance.reservation(name)["spec"]["template"]
        await client.patch(RESERVATIONS, name, {"spec": {"template": template}})
        if source.random() < 0.5:  # and back at once, while that is being done
            await client.patch(RESERVATIONS, name, {"spec": {"template": before}})
    elif roll < 0.86:
        await world.fault(ScenarioFault(bind="fail", count=source.randint(1, 3)))
    elif roll < 0.91:
        await world.fault(ScenarioFault(bind="slow", count=source.randint(1, 3), delay=source.choice([0.5, 20.0])))
    elif roll < 0.95:
        await world.fault(ScenarioFault(restart=source.choice(["scheduler", "controllers", "all"])))
    else:
        await world.advance(world.loop.time() + source.choice([5.0, 40.0, 130.0]))
    if source.random() < 0.5:
        await world.loop.still()
    if source.random() < 0.3:
        await world.settle()


@pytest.mark.parametrize("preemption", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_what_is_reserved_is_kept_and_nothing_is_over_committed(seed: int, preemption: bool) -> None:
    configuration = Configuration()
    if preemption:
        settings = type(configuration.of(ReservationSettings))(enable_preemption=True)
        configuration = Configuration().having(settings)
    world = SimulatedCluster(configuration, start=START, seed=seed)
    history = History(world)
    chance = Chance(random.Random(f"{seed} {preemption}"))
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}

    async def play() -> None:
        client = world.client("", lambda warning: None)
        following = [
            asyncio.ensure_future(history.follow(*each)) for each in ((PODS, Pod), (RESERVATIONS, Reservation))
        ]
        for document in (high, *map(node, NODES)):
            await applying.apply(client, document, world.registry)
        for _ in range(60):
            try:
                await act(world, chance)
            except ApiError as error:
                assert error.code in (404, 409, 422), error
        await world.settle()
        await world.loop.still()
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)

    world.start()
    try:
        world.loop.complete(play())
        history.check()
        check_status(world)
    finally:
        world.close()


def check_status(world: SimulatedCluster) -> None:
    """When all is quiet, what reservations say of their use is what the pods say."""
    pods = [view(each, Pod) for each in world.objects(PODS)]
    for document in world.objects(RESERVATIONS):
        reservation = view(document, Reservation)
        if reservation.phase == "Available":
            using = {
                pod.metadata.name
                for pod in pods
                if pod.spec.node_name == reservation.status.node_name
                and not pod.terminal
                and (record := allocation_of(pod.metadata)) is not None
                and record.uid == reservation.metadata.uid
            }
            assert {owner.name for owner in reservation.status.current_owners} == using
