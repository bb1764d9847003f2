"""Compares what was predicted with what happened: counts, nodes, statuses, messages, and that doing nothing changed
nothing."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.predictions.worlds import Document

from wharfinger.api.object_meta import controller_of

REVISION = "deployment.kubernetes.io/revision"
COMPARED = (
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "DaemonSet",
    "Job",
    "PodDisruptionBudget",
    "ResourceQuota",
    "Node",
)
TIMES = ("Time", "Timestamp")


class State:
    """The objects of a cluster, with names for what is generated: a ReplicaSet is called after its Deployment and
    revision, and its pods after it."""

    def __init__(self, objects: Sequence[Document]) -> None:
        self.of_kind: dict[str, list[Document]] = defaultdict(list)
        for each in objects:
            self.of_kind[each["kind"]].append(each)
        self.names = dict(self._generated())
        #: StatefulSets that create their pods at the same time
        self._parallel = {
            each["metadata"]["uid"]
            for each in self.of_kind["StatefulSet"]
            if each["spec"]["podManagementPolicy"] == "Parallel"
        }

    def _generated(self) -> Iterable[tuple[str, str]]:
        for each in self.of_kind["ReplicaSet"]:
            owner = controller_of(each)
            if owner is not None:
                revision = (each["metadata"].get("annotations") or {}).get(REVISION, "")
                yield each["metadata"]["name"], f"{owner['name']}@{revision}"
        for each in self.of_kind["ControllerRevision"]:
            owner = controller_of(each)
            if owner is not None:
                yield each["metadata"]["name"], f"{owner['name']}@{each['revision']}"

    @property
    def pods(self) -> list[Document]:
        return self.of_kind["Pod"]

    def group(self, pod: Document) -> str:
        """What the pod is interchangeable within: its controller and revision; a pod with a name of its own is alone."""
        metadata, owner = pod["metadata"], controller_of(pod)
        if owner is None:
            return f"{metadata['namespace']}/{metadata['name']}"
        name = self.names.get(owner["name"], owner["name"])
        if owner["kind"] == "StatefulSet" and owner["uid"] not in self._parallel:
            name = metadata["name"]
        if index := (metadata.get("annotations") or {}).get("batch.kubernetes.io/job-completion-index"):
            name = f"{name}[{index}]"
        if owner["kind"] in ("StatefulSet", "DaemonSet"):
            revision = (metadata.get("labels") or {}).get("controller-revision-hash", "")
            name += f" {self.names.get(revision) or self.names.get(owner['name'] + '-' + revision, revision)}"
        return f"{metadata['namespace']}/{owner['kind']} {name}"

    def readable(self, text: str) -> str:
        """The text with generated names replaced."""
        for name in sorted(self.names, key=len, reverse=True):
            text = re.sub(f"{re.escape(name)}(-[a-z0-9]{{5}})?", self.names[name], text)
        return text


def node_of(pod: Document) -> str:
    return (pod.get("spec") or {}).get("nodeName") or ""


def counts(state: State) -> Counter[str]:
    """How many pods each group has, by phase, and whether they have a node."""
    return Counter(
        f"{state.group(pod)}: {pod['status'].get('phase', 'Pending')}{'' if node_of(pod) else ' without a node'}"
        for pod in state.pods
    )


def nodes(state: State, before: State) -> Counter[str]:
    """Where pods are: those that had a node before by name, the others by group."""
    placed = {pod["metadata"]["uid"] for pod in before.pods if node_of(pod)}
    return Counter(
        f"{pod['metadata']['name'] if pod['metadata']['uid'] in placed else 'new ' + state.group(pod)} on {node_of(pod)}"
        for pod in state.pods
        if node_of(pod)
    )


def messages(state: State) -> Counter[str]:
    """What pods without a node say about it."""
    found: Counter[str] = Counter()
    for pod in state.pods:
        if not node_of(pod):
            scheduled = condition(pod, "PodScheduled")
            found[f"{state.group(pod)}: {scheduled.get('reason')}: {scheduled.get('message')}"] += 1
    return found


def statuses(state: State) -> Counter[str]:
    """The statuses of everything else, and the conditions of pods, without times."""
    found: Counter[str] = Counter()
    for kind in COMPARED:
        for each in state.of_kind[kind]:
            name = state.names.get(each["metadata"]["name"], each["metadata"]["name"])
            for path, value in _leaves(each.get("status") or {}):
                if kind == "Node" and not path.startswith(("conditions[Ready]", "allocatable")):
                    continue
                found[f"{kind} {name}: {path} = {state.readable(str(value))}"] += 1
            if kind == "Node":
                for taint in each["spec"].get("taints") or ():
                    found[f"Node {name}: taint {taint['key']}:{taint['effect']}"] += 1
    for pod in state.pods:
        for each in pod["status"].get("conditions") or ():
            text = f"{each['type']} {each['status']} {each.get('reason', '')}"
            found[f"Pod {state.group(pod)}: {text}"] += 1
    return found


def condition(document: Document, type: str) -> Document:
    conditions = (document.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == type), {})


_GENERATIONS = ("observedGeneration", "collisionCount")


def _leaves(value: Any, path: str = "") -> Iterable[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not key.endswith(TIMES) and key not in _GENERATIONS and key != "uncountedTerminatedPods":
                yield from _leaves(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            mark = item.get("type", number) if isinstance(item, Mapping) else number
            yield from _leaves(item, f"{path}[{mark}]")
    elif value not in (0, "", None):
        yield path, value


def differences(predicted: Counter[str], real: Counter[str]) -> list[str]:
    """Lines with - for what was predicted and did not happen, + for what happened."""
    lines = [f"- {text}{f' x{number}' if number > 1 else ''}" for text, number in sorted((predicted - real).items())]
    lines += [f"+ {text}{f' x{number}' if number > 1 else ''}" for text, number in sorted((real - predicted).items())]
    return lines


# Doing nothing


_VOLATILE = re.compile(r"resourceVersion|managedFields")
_IGNORED = ("Lease", "Snapshot", "CustomResourceDefinition")  # definitions are applied, so that their kinds are served


def changes(before: Sequence[Document], after: Sequence[Document]) -> list[str]:
    """What differs between a snapshot and the same cluster when nothing was done."""
    old, new = _keyed(before), _keyed(after)
    lines = [f"- {' '.join(key)} is gone" for key in old.keys() - new.keys()]
    for key, document in old.items():
        if key in new:
            for part in ("metadata", "spec", "status", "data", "webhooks", "rules"):
                lines += _changed(f"{' '.join(key)}: {part}", document.get(part), new[key].get(part))
    kinds = {key[0] for key in old}
    lines += [f"+ {' '.join(key)} is new" for key in new.keys() - old.keys() if key[0] in kinds]
    return sorted(lines)


def _keyed(objects: Sequence[Document]) -> dict[tuple[str, str, str], Document]:
    return {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in objects
        if each["kind"] not in _IGNORED
    }


def _changed(path: str, old: Any, new: Any) -> Iterable[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in old.keys() | new.keys():
            if not _VOLATILE.fullmatch(key):
                yield from _changed(f"{path}.{key}", old.get(key), new.get(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (first, second) in enumerate(zip(old, new, strict=True)):
            yield from _changed(f"{path}[{number}]", first, second)
    elif (old or None) != (new or None):
        yield f"~ {path}: {old!r} -> {new!r}"
