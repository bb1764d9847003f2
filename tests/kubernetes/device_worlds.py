"""Random worlds of devices, and the pods that ask for them: the same seed makes the same objects, step after step.

Every world has nodes, slices, classes and a namespace of its own, so that many live in one cluster without meeting. Nodes
are ranked by preferred affinity, so that no two of them are equally good.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.kubernetes.manifests import Document, namespace, pod

GPU, PART, NIC, FABRIC = "gpu.example.com", "part.example.com", "nic.example.com", "fabric.example.com"
LABEL = "devices.test/world"
RANKS = (100, 59, 27)
MODELS = ("small", "large")
GROUP = "resource.k8s.io/v1"


def resource(kind: str, name: str, space: str = "", **content: Any) -> Document:
    metadata = {"name": name, "namespace": space} if space else {"name": name}
    return {"apiVersion": GROUP, "kind": kind, "metadata": metadata, **content}


@dataclass
class Changes:
    """What a step changes. Slices in `published` replace those of the same name."""

    created: list[Document] = field(default_factory=list)
    deleted: list[tuple[str, str]] = field(default_factory=list)  # kind and name
    published: list[Document] = field(default_factory=list)


class DeviceWorld:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.name = f"w{seed}"
        self.space = f"devices-{self.name}"
        self._chance = random.Random(seed)
        self._nodes = [f"{self.name}-n{number}" for number in range(self._chance.randint(1, 3))]
        self._gpus = {node: self._chance.randint(2, 4) for node in self._nodes}
        self._shared = [f"shared-{number}" for number in range(3)]
        self._generation = dict.fromkeys(self._nodes, 1)
        self._tainted: list[str] = []
        self._made = 0

    # -- what is there from the start

    def namespace(self) -> Document:
        return namespace(self.space, **{"resource.kubernetes.io/admin-access": "true"})

    def setup(self) -> list[Document]:
        made = [self._node(rank, name) for rank, name in enumerate(self._nodes)]
        made += [self._class(name, driver) for name, driver in self._classes()]
        made += [self._gpu_slice(node) for node in self._nodes]
        made += [each for node in self._nodes for each in self._partitions(node)]
        made += [self._nics(node) for node in self._nodes if self._chance.random() < 0.8]
        made.append(self._fabric())
        made += [self._claim(name) for name in self._shared]
        return made

    def _classes(self) -> list[tuple[str, str]]:
        return [("gpu", GPU), ("part", PART), ("nic", NIC), ("fabric", FABRIC)]

    @property
    def extended(self) -> str:
        return f"example.com/gpu-{self.name}"

    def _node(self, rank: int, name: str) -> Document:
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {LABEL: self.name, "rank": str(rank)}},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}],
            },
        }

    def _class(self, name: str, driver: str) -> Document:
        spec: Document = {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]}
        if name == "gpu":
            spec["extendedResourceName"] = self.extended
            spec["config"] = [{"opaque": {"driver": GPU, "parameters": {"mode": "fast"}}}]
        return resource("DeviceClass", f"{name}-{self.name}", spec=spec)

    def _slice(self, name: str, driver: str, pool: str, count: int = 1, generation: int = 1, **spec: Any) -> Document:
        described = {"name": pool, "generation": generation, "resourceSliceCount": count}
        return resource("ResourceSlice", name, spec={"driver": driver, "pool": described, **spec})

    def _gpu_slice(self, node: str) -> Document:
        content = random.Random(f"{self.seed}/{node}")
        devices = []
        for index in range(self._gpus[node]):
            model = content.choice(MODELS)
            device: Document = {
                "name": f"gpu-{index}",
                "attributes": {
                    "model": {"string": model},
                    "index": {"int": index},
                    "example.com/numa": {"int": content.randint(0, 1)},
                    "driverVersion": {"version": content.choice(("1.2.3", "2.0.0"))},
                },
                "capacity": {"memory": {"value": "80Gi" if model == "large" else "40Gi"}},
            }
            if content.random() < 0.15:
                device["taints"] = [{"key": "example.com/worn", "effect": "NoSchedule"}]
            devices.append(device)
        generation = self._generation[node]
        return self._slice(f"{node}-gpu", GPU, node, generation=generation, nodeName=node, devices=devices)

    def _partitions(self, node: str) -> list[Document]:
        """A device that can be used as a whole, or in parts."""
        counters = [{"name": "memory", "counters": {"memory": {"value": "80Gi"}, "engines": {"value": "4"}}}]
        devices = []
        for name, size, memory, engines in (
            ("half-0", "half", "40Gi", 2),
            ("half-1", "half", "40Gi", 2),
            ("quarter-0", "quarter", "20Gi", 1),
            ("quarter-1", "quarter", "20Gi", 1),
            ("whole", "whole", "80Gi", 4),
        ):
            used = {"memory": {"value": memory}, "engines": {"value": str(engines)}}
            devices.append(
                {
                    "name": name,
                    "attributes": {"size": {"string": size}},
                    "capacity": {"memory": {"value": memory}},
                    "consumesCounters": [{"counterSet": "memory", "counters": used}],
                }
            )
        return [
            self._slice(f"{node}-part-a", PART, node, 2, nodeName=node, sharedCounters=counters),
            self._slice(f"{node}-part-b", PART, node, 2, nodeName=node, devices=devices),
        ]

    def _nics(self, node: str) -> Document:
        """Devices of which several claims take bandwidth."""
        policy = {"default": "1G", "validRange": {"min": "1G", "max": "8G", "step": "500M"}}
        devices = [
            {
                "name": f"nic-{index}",
                "allowMultipleAllocations": True,
                "attributes": {"example.com/numa": {"int": index}},
                "capacity": {"bandwidth": {"value": "10G", "requestPolicy": policy}},
            }
            for index in range(2)
        ]
        return self._slice(f"{node}-nic", NIC, node, nodeName=node, devices=devices)

    def _fabric(self) -> Document:
        """Devices that all nodes of the world reach."""
        term = {"matchExpressions": [{"key": LABEL, "operator": "In", "values": [self.name]}]}
        devices = [{"name": f"port-{index}", "attributes": {"speed": {"int": 100 * index}}} for index in range(3)]
        selector = {"nodeSelectorTerms": [term]}
        return self._slice(f"{self.name}-fabric", FABRIC, f"{self.name}-fabric", nodeSelector=selector, devices=devices)

    # -- what pods ask for

    def _claim(self, name: str) -> Document:
        return resource("ResourceClaim", name, self.space, spec=self._claim_spec())

    def _claim_spec(self) -> Document:
        requests = [self._request(f"r{index}") for index in range(self._chance.choice((1, 1, 2)))]
        devices: Document = {"requests": requests}
        if len(requests) == 2 and self._chance.random() < 0.5:
            kind = self._chance.choice(("matchAttribute", "distinctAttribute"))
            devices["constraints"] = [{"requests": ["r0", "r1"], kind: "example.com/numa"}]
        if self._chance.random() < 0.3:
            parameters = {"seed": self._chance.randint(0, 9)}
            devices["config"] = [{"requests": ["r0"], "opaque": {"driver": GPU, "parameters": parameters}}]
        return {"devices": devices}

    def _request(self, name: str) -> Document:
        kind = self._chance.choice(("gpu", "gpu", "gpus", "all", "first", "admin", "part", "nic", "fabric"))
        if kind == "first":
            return {"name": name, "firstAvailable": self._alternatives()}
        return {"name": name, "exactly": self._exactly(kind)}

    def _exactly(self, kind: str) -> Document:
        made: Document = {"deviceClassName": f"{'gpu' if kind in ('gpus', 'all', 'admin') else kind}-{self.name}"}
        if kind == "gpu":
            made["selectors"] = self._gpu_selectors()
            if self._chance.random() < 0.3:
                made["tolerations"] = [{"key": "example.com/worn", "operator": "Exists"}]
        elif kind == "gpus":
            made["count"] = 2
        elif kind == "all":
            made |= {"allocationMode": "All", "selectors": self._gpu_selectors() or [self._cel("true")]}
        elif kind == "admin":
            made |= {"adminAccess": True, "selectors": self._gpu_selectors()}
        elif kind == "part":
            size = self._chance.choice(("quarter", "half", "half", "whole"))
            made["selectors"] = [self._cel(f'device.attributes["{PART}"].size == "{size}"')]
        elif kind == "nic" and self._chance.random() < 0.8:
            made["capacity"] = {"requests": {"bandwidth": self._chance.choice(("1G", "2200M", "4G", "7G", "9G"))}}
        elif kind == "fabric":
            made["selectors"] = [self._cel(f'device.attributes["{FABRIC}"].speed >= {self._chance.choice((0, 100))}')]
        return made

    def _alternatives(self) -> list[Document]:
        found = []
        for index, kind in enumerate(self._chance.sample(("gpu", "gpus", "part", "nic", "fabric"), 3)):
            found.append({"name": f"a{index}", **self._exactly(kind)})
        return found

    def _gpu_selectors(self) -> list[Document]:
        attributes, memory = f'device.attributes["{GPU}"]', f'device.capacity["{GPU}"].memory'
        chosen = self._chance.choice(
            (
                "",
                f'{attributes}.model == "{self._chance.choice(MODELS)}"',
                f'{memory}.compareTo(quantity("60Gi")) >= 0',
                f'{attributes}.driverVersion.isGreaterThan(semver("1.9.0"))',
                'device.attributes["example.com"].?numa.orValue(7) == 0',
                f"{attributes}.index in [1, 2]",
            )
        )
        return [self._cel(chosen)] if chosen else []

    @staticmethod
    def _cel(expression: str) -> Document:
        return {"cel": {"expression": expression}}

    # -- steps

    def step(self, bound: Mapping[str, str], pending: list[str]) -> Changes:
        """The next change. At most one pod is left pending, so that it does not matter who is tried first."""
        changes = Changes(deleted=[("Pod", name) for name in pending[:-1]])
        match self._chance.choices(("create", "delete", "taint", "grow"), (10, 5, 1, 1))[0]:
            case "delete" if bound:
                changes.deleted.append(("Pod", self._chance.choice(sorted(bound))))
            case "taint":
                changes = self._taint(changes)
            case "grow":
                node = self._chance.choice(self._nodes)
                self._gpus[node] += 1
                self._generation[node] += 1
                changes.published.append(self._gpu_slice(node))
            case _:
                changes.created += self.pod()
        return changes

    def _taint(self, changes: Changes) -> Changes:
        if self._tainted and self._chance.random() < 0.5:
            changes.deleted.append(("DeviceTaintRule", self._tainted.pop()))
            return changes
        name = f"{self.name}-{self._chance.randrange(10**6)}"
        self._tainted.append(name)
        selector = {"driver": GPU, "pool": self._chance.choice(self._nodes), "device": "gpu-0"}
        spec = {"deviceSelector": selector, "taint": {"key": "example.com/bad", "effect": "NoSchedule"}}
        changes.created.append(resource("DeviceTaintRule", name, spec=spec))
        return changes

    def pod(self) -> list[Document]:
        """A pod with what it asks for, and the templates that it needs."""
        self._made += 1
        name = f"p{self._made:02}"
        made: list[Document] = []
        claims: list[Document] = []
        if self._chance.random() < 0.2:
            requests = {"cpu": "100m", self.extended: str(self._chance.randint(1, 2))}
        else:
            requests = {"cpu": "100m"}
            for index in range(self._chance.choice((1, 1, 1, 2))):
                if self._chance.random() < 0.3:
                    claims.append({"name": f"c{index}", "resourceClaimName": self._chance.choice(self._shared)})
                else:
                    template = f"{name}-t{index}"
                    spec = self._claim_spec()
                    made.append(resource("ResourceClaimTemplate", template, self.space, spec={"spec": spec}))
                    claims.append({"name": f"c{index}", "resourceClaimTemplateName": template})
            if len({each.get("resourceClaimName", each["name"]) for each in claims}) < len(claims):
                claims.pop()  # the same claim twice is refused
        terms = [
            {"weight": weight, "preference": {"matchExpressions": [_among("rank", str(rank))]}}
            for rank, weight in enumerate(RANKS)
        ]
        affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
        asking = pod(
            name, self.space, scheduler="default-scheduler", nodeSelector={LABEL: self.name}, affinity=affinity
        )
        limits = {key: value for key, value in requests.items() if key != "cpu"}
        container = asking["spec"]["containers"][0]
        container["resources"] = {"requests": requests, "limits": limits}
        if claims:
            asking["spec"]["resourceClaims"] = claims
            container["resources"]["claims"] = [{"name": each["name"]} for each in claims]
        return [*made, asking]


def _among(key: str, value: str) -> Document:
    return {"key": key, "operator": "In", "values": [value]}
