"""Random histories of a simulated cluster, from a seed: the same seed gives the same history.

When everything is quiet, no waiting pod or reservation may get a node, or find pods to preempt, if it is tried again.
To try many seeds: `python -m tests.scheduler.histories 0 5000`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from tests.scheduler.test_live import Document, Stage, klass

from wharfinger.api.errors import ApiError
from wharfinger.api.kinds.builtin import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS
from wharfinger.api.requests import PatchType
from wharfinger.node.annotations import RUN_FOR, SHUTDOWN_AFTER
from wharfinger.scenario import applying
from wharfinger.scenario.document import ScenarioFault
from wharfinger.scheduler.queue import Place, QueuedPod
from wharfinger.scheduler.scheduler import Scheduler
from wharfinger.simulate.components import make_scheduler
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.resource_policy.kinds.names import RESOURCE_POLICIES

QUIET = 15.0  # seconds; longer than the longest back-off, shorter than the retry without an event
CLASSES = {"low": -10, "mid": 100, "high": 1000}
APPS = ("web", "db", "job")


class History:
    def __init__(self, seed: int, **configuration: Any) -> None:
        self.rng = random.Random(seed)
        self.stage = Stage(**configuration)
        self.world = self.stage.world
        self.client = self.stage.client
        self.told: list[str] = []  # what was done, for the report
        self._made = 0
        self._acts: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (6, self.add_node),
            (2, self.drop_node),
            (2, self.relabel_node),
            (2, self.taint_node),
            (1, self.cordon_node),
            (2, self.resize_node),
            (1, self.break_node),
            (14, self.add_pod),
            (6, self.drop_pod),
            (3, self.relabel_pod),
            (4, self.resize_pod),
            (1, self.open_gate),
            (1, self.finish_deletion),
            (3, self.add_reservation),
            (2, self.drop_reservation),
            (1, self.resize_reservation),
            (2, self.set_policy),
            (1, self.drop_policy),
            (2, self.add_volume),
            (1, self.drop_volume),
            (2, self.fail_bindings),
            (3, self.slow_bindings),
            (1, self.restart),
            (4, self.wait),
        ]

    # -- playing

    def play(self, rounds: int, steps: int) -> None:
        """Raises AssertionError with the history if something stalls."""

        async def run() -> None:
            await self.begin()
            for _ in range(rounds):
                for _ in range(self.rng.randint(1, steps)):
                    await self.act()
                await self.settle()
                await self.check()

        try:
            self.world.loop.complete(run())
        finally:
            self.world.close()

    async def begin(self) -> None:
        for name, value in CLASSES.items():
            await applying.apply(self.client, klass(name, value), self.world.registry)
        await applying.apply(
            self.client,
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": "late"},
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
            },
            self.world.registry,
        )
        for _ in range(self.rng.randint(1, 3)):
            with suppress(ApiError):  # there is one of that name
                await self.add_node()

    async def act(self) -> None:
        chosen = self.rng.choices([act for _, act in self._acts], [weight for weight, _ in self._acts])[0]
        self.told.append(f"{self.world.loop.time():.1f}: {chosen.__name__}")
        try:
            await chosen()
        except ApiError as error:
            self.tell(f"refused: {error}")
        if self.rng.random() < 0.6:
            await self.world.loop.still()

    async def settle(self) -> None:
        await self.world.settle()
        await self.world.advance(self.world.loop.time() + QUIET)
        await self.world.settle()

    def tell(self, text: str) -> None:
        self.told[-1] += f" {text}"

    # -- the property

    async def check(self) -> None:
        """Asks the engine about everything that waits, and a second one that was loaded just now."""
        world, scheduler = self.world, self.world.scheduler
        assert scheduler is not None, "the scheduler broke"
        assert not scheduler.state.cycle.busy, self.report("something is still being bound")
        fresh, _ = make_scheduler(
            self.client, world.clock, world.configuration, world.registry, 0, random.Random("fresh")
        )
        await fresh.load()
        try:
            waiting = {each.key: each.place for each in scheduler.state.queue}
            known = {each.key for each in fresh.state.queue}
            assert waiting.keys() == known, self.report(f"lost: {known - waiting.keys()}")
            for item in scheduler.state.queue:
                if item.place is not Place.GATED and not item.failed:
                    self._check_one(item, scheduler, "waits")
                    self._check_one(item, fresh, "waits, which a new scheduler finds wrong,")
        finally:
            await fresh.stop()

    def _check_one(self, item: QueuedPod, scheduler: Scheduler, what: str) -> None:
        state, engine = scheduler.state, scheduler.engine
        name, refused_by = item.pod.metadata.name, sorted(item.refused_by)
        assert item.place is Place.UNSCHEDULABLE, self.report(f"{name} is {item.place}")
        decision = engine.schedule(item.pod)
        assert decision.node is None, self.report(
            f"{name} {what} though it fits on {decision.node}; refused by {refused_by}"
        )
        if decision.diagnosis is not None and state.cycle.may_preempt(item.pod):
            result = engine.preempt(item.pod, decision.diagnosis)
            staying = [each.metadata.name for each in result.victims if not each.terminating]
            assert not staying, self.report(
                f"{name} {what} though it could preempt {staying} on {result.node}; refused by {refused_by}"
            )

    def report(self, fault: str) -> str:
        return "\n".join((*self.told, fault))

    # -- nodes

    async def add_node(self) -> None:
        rng = self.rng
        room = {"cpu": str(rng.randint(1, 6)), "memory": "32Gi", "pods": rng.choice(("2", "5", "110"))}
        labels = {"zone": rng.choice("ab"), "pool": rng.choice(("static", "spot"))}
        node: Document = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{rng.randint(0, 4)}", "labels": labels},
            "status": {"allocatable": room, "capacity": room},
        }
        labels["kubernetes.io/hostname"] = node["metadata"]["name"]
        if rng.random() < 0.2:
            node["spec"] = {"taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]}
        self.tell_last(f"{node['metadata']['name']} {room} {labels} {node.get('spec', '')}")
        await self.client.create(NODES, node)

    def tell_last(self, text: str) -> None:
        if self.told:
            self.tell(text)

    def one_of(self, resource: Any) -> Document | None:
        found = self.world.objects(resource)
        return self.rng.choice(found) if found else None

    async def drop_node(self) -> None:
        await self._drop(NODES)

    async def _drop(self, resource: Any, **options: Any) -> None:
        found = self.one_of(resource)
        if found is not None:
            metadata = found["metadata"]
            self.tell(f"{metadata['name']} {options or ''}")
            await self.client.delete(resource, metadata["name"], metadata.get("namespace", ""), **options)

    async def _patch(self, resource: Any, change: Callable[[Document], Document], **options: Any) -> None:
        found = self.one_of(resource)
        if found is not None:
            metadata = found["metadata"]
            patch = change(found)
            self.tell(f"{metadata['name']} {patch}")
            await self.client.patch(resource, metadata["name"], patch, metadata.get("namespace", ""), **options)

    async def relabel_node(self) -> None:
        labels = {self.rng.choice(("zone", "pool")): self.rng.choice(("a", "b", "static", "spot", None))}
        await self._patch(NODES, lambda node: {"metadata": {"labels": labels}})

    async def taint_node(self) -> None:
        taint = {"key": "dedicated", "value": "x", "effect": self.rng.choice(("NoSchedule", "NoExecute"))}
        taints = [taint] if self.rng.random() < 0.4 else None
        await self._patch(NODES, lambda node: {"spec": {"taints": taints}})

    async def cordon_node(self) -> None:
        cordoned = self.rng.random() < 0.4 or None
        await self._patch(NODES, lambda node: {"spec": {"unschedulable": cordoned}})

    async def resize_node(self) -> None:
        room = {"cpu": str(self.rng.randint(1, 8)), "pods": self.rng.choice(("2", "6"))}
        await self._patch(NODES, lambda node: {"status": {"allocatable": room}}, subresource="status")

    async def break_node(self) -> None:
        found = self.one_of(NODES)
        if found is not None:
            down = self.rng.random() < 0.5
            self.tell(f"{found['metadata']['name']} {down}")
            await self.world.fault(ScenarioFault(node=found["metadata"]["name"], down=down))

    # -- pods

    def pod(self) -> Document:
        rng = self.rng
        self._made += 1
        app = rng.choice(APPS)
        container: Document = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(rng.randint(1, 3))}}}
        spec: Document = {"containers": [container], "terminationGracePeriodSeconds": rng.choice((0, 20, 60))}
        annotations = {}
        if rng.random() < 0.6:
            annotations[SHUTDOWN_AFTER] = rng.choice(("5s", "50s"))
        if rng.random() < 0.15:
            annotations[RUN_FOR] = rng.choice(("3s", "30s"))
            spec["restartPolicy"] = "Never"
        if rng.random() < 0.5:
            spec["priorityClassName"] = rng.choice(tuple(CLASSES))
            if rng.random() < 0.2:
                spec["preemptionPolicy"] = "Never"
        if rng.random() < 0.15:
            container["ports"] = [{"containerPort": 80, "hostPort": rng.choice((80, 81))}]
        if rng.random() < 0.2:
            spec["nodeSelector"] = rng.choice(({"zone": "a"}, {"zone": "b"}, {"pool": "spot"}))
        if rng.random() < 0.15:
            spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        if rng.random() < 0.25:
            spec["affinity"] = self._affinity()
        if rng.random() < 0.2:
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1,
                    "topologyKey": rng.choice(("zone", "kubernetes.io/hostname")),
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": app}},
                    "nodeTaintsPolicy": rng.choice(("Honor", "Ignore")),
                    "nodeAffinityPolicy": rng.choice(("Honor", "Ignore")),
                }
            ]
        if rng.random() < 0.05:
            spec["schedulingGates"] = [{"name": "hold"}]
        if rng.random() < 0.15:
            claim = f"c{rng.randint(0, 3)}"
            spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
        metadata: Document = {"name": f"p{self._made}", "namespace": "default", "labels": {"app": app}}
        if rng.random() < 0.5:
            metadata["labels"]["team"] = rng.choice("xy")
        metadata["annotations"] = annotations
        if rng.random() < 0.1:
            metadata["finalizers"] = ["example.org/hold"]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _affinity(self) -> Document:
        rng = self.rng
        term = {
            "labelSelector": {"matchLabels": {"app": rng.choice(APPS)}},
            "topologyKey": rng.choice(("zone", "kubernetes.io/hostname")),
        }
        kind = rng.choice(("podAffinity", "podAntiAffinity", "podAntiAffinity"))
        return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    async def add_pod(self) -> None:
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            made = self.pod()
            self.tell(f"{made['metadata']} {made['spec']}")
            await self.client.create(PODS, made, "default")

    async def drop_pod(self) -> None:
        await self._drop(PODS, grace_period=self.rng.choice((0, None, None)))

    async def relabel_pod(self) -> None:
        labels = {"app": self.rng.choice(APPS), "team": self.rng.choice(("x", "y", None))}
        await self._patch(PODS, lambda pod: {"metadata": {"labels": labels}})

    async def resize_pod(self) -> None:
        resources = {"requests": {"cpu": str(self.rng.randint(1, 3))}}
        change = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
        await self._patch(PODS, lambda pod: change, subresource="resize", type=PatchType.STRATEGIC)

    async def open_gate(self) -> None:
        gated = [each for each in self.world.objects(PODS) if each["spec"].get("schedulingGates")]
        for each in gated:
            await self.client.patch(PODS, each["metadata"]["name"], {"spec": {"schedulingGates": None}}, "default")

    async def finish_deletion(self) -> None:
        for each in self.world.objects(PODS):
            if each["metadata"].get("finalizers"):
                await self.client.patch(PODS, each["metadata"]["name"], {"metadata": {"finalizers": None}}, "default")

    # -- reservations and policies

    async def add_reservation(self) -> None:
        rng = self.rng
        self._made += 1
        made = self.pod()
        template = {"metadata": {"namespace": "default", "labels": made["metadata"]["labels"]}, "spec": made["spec"]}
        for each in ("priorityClassName", "preemptionPolicy", "schedulingGates", "volumes", "restartPolicy"):
            template["spec"].pop(each, None)
        owners = [{"labelSelector": {"matchLabels": {"app": rng.choice(APPS)}}}]
        spec: Document = {
            "template": template,
            "owners": owners,
            "ttl": rng.choice(("20s", "1h")),
            "allocateOnce": rng.random() < 0.5,
        }
        if rng.random() < 0.3:
            spec["allocatePolicy"] = rng.choice(("Aligned", "Restricted"))
        if rng.random() < 0.2:
            spec["preAllocation"] = True
        metadata = {"name": f"r{self._made}"}
        self.tell(f"{metadata} {spec}")
        document = {"apiVersion": RESERVATIONS.api_version, "kind": "Reservation", "metadata": metadata, "spec": spec}
        await self.client.create(RESERVATIONS, document)

    async def drop_reservation(self) -> None:
        await self._drop(RESERVATIONS)

    async def resize_reservation(self) -> None:
        resources = {"requests": {"cpu": str(self.rng.randint(1, 3))}}

        def change(found: Document) -> Document:
            containers = [{**each, "resources": resources} for each in found["spec"]["template"]["spec"]["containers"]]
            return {"spec": {"template": {"spec": {"containers": containers}}}}

        await self._patch(RESERVATIONS, change)

    async def set_policy(self) -> None:
        rng = self.rng
        units = []
        for index in range(rng.randint(1, 3)):
            unit: Document = {"name": f"u{index}", "priority": rng.randint(0, 3)}
            unit["nodeSelector"] = {"matchLabels": rng.choice(({"pool": "static"}, {"pool": "spot"}, {"zone": "a"}))}
            limit = rng.choice(("count", "count", "percent", "resources", "none"))
            if limit == "count":
                unit["maxCount"] = rng.randint(0, 3)
            elif limit == "percent":
                unit["maxPercent"] = rng.choice((30, 50))
            elif limit == "resources":
                unit["maxResources"] = {"cpu": str(rng.randint(1, 5))}
            units.append(unit)
        spec: Document = {"units": units, "podSelector": {"matchLabels": {"app": rng.choice(APPS)}}}
        spec["strategy"] = rng.choice(("required", "prefer"))
        spec["matchPolicy"] = {"ignoreTerminatingPod": rng.random() < 0.5}
        if rng.random() < 0.4:
            spec["matchLabelKeys"] = ["team"]
        spec["whenTryNextUnits"] = rng.choice(
            (
                {"policy": "ExceedMax"},
                {"policy": "TimeoutOrExceedMax", "timeout": "20s"},
                {"policy": "LackResourceOrExceedMax"},
            )
        )
        document = {
            "apiVersion": RESOURCE_POLICIES.api_version,
            "kind": RESOURCE_POLICIES.kind,
            "metadata": {"name": f"policy-{rng.randint(0, 1)}", "namespace": "default"},
            "spec": spec,
        }
        self.tell(f"{document['metadata']} {spec}")
        await applying.apply(self.client, document, self.world.registry)

    async def drop_policy(self) -> None:
        await self._drop(RESOURCE_POLICIES)

    # -- volumes

    async def add_volume(self) -> None:
        rng = self.rng
        modes = [rng.choice(("ReadWriteOnce", "ReadWriteOncePod"))]
        name = f"c{rng.randint(0, 3)}"
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "storageClassName": "late",
                "accessModes": modes,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"v{rng.randint(0, 5)}"},
            "spec": {
                "storageClassName": "late",
                "accessModes": modes,
                "capacity": {"storage": "1Gi"},
                "local": {"path": "/data"},
                "nodeAffinity": {
                    "required": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "zone", "operator": "In", "values": [rng.choice("ab")]}]}
                        ]
                    }
                },
            },
        }
        resource, document = rng.choice(((PERSISTENT_VOLUME_CLAIMS, claim), (PERSISTENT_VOLUMES, volume)))
        self.tell(f"{document['metadata']}")
        await self.client.create(resource, document, document["metadata"].get("namespace", ""))

    async def drop_volume(self) -> None:
        await self._drop(self.rng.choice((PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES)))

    # -- faults and time

    async def fail_bindings(self) -> None:
        count = self.rng.randint(1, 2)
        self.tell(str(count))
        await self.world.fault(ScenarioFault(bind="fail", count=count))

    async def slow_bindings(self) -> None:
        count, delay = self.rng.randint(1, 3), self.rng.choice((1.0, 8.0, 25.0))
        self.tell(f"{count} {delay}")
        await self.world.fault(ScenarioFault(bind="slow", count=count, delay=delay))

    async def restart(self) -> None:
        await self.world.fault(ScenarioFault(restart=self.rng.choice(("scheduler", "controllers"))))

    async def wait(self) -> None:
        seconds = self.rng.choice((0.5, 2.0, 7.0, 30.0, 120.0))
        self.tell(str(seconds))
        await self.world.advance(self.world.loop.time() + seconds)


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        try:
            History(number).play(rounds=5, steps=8)
        except AssertionError as fault:
            print(f"seed {number}: {fault}\n", flush=True)
