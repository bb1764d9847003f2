"""Case by case against the answers of kube-scheduler v1.37.1 about devices: verdicts, reasons, scores, allocations, and what
PostFilter does.

`WHARF_DRA_CASES` names another file of the same format to try instead.
"""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from wharfinger.api.views import Node, Pod, view
from wharfinger.engine import Engine, default_profile, known_plugins
from wharfinger.framework.status import Code
from wharfinger.plugins.dynamic_resources.filtering import DevicePlan, DevicesPrepared

CASES = Path(__file__).parent / "cases" / "kube-scheduler-dra-1.37.1.jsonl.gz"
LEFT_OUT = (
    "VolumeBinding",
    "VolumeRestrictions",
    "VolumeZone",
    "NodeVolumeLimits",
    "DefaultPreemption",
)
PROFILE = default_profile(without=[name for name, plugin in known_plugins().items() if plugin.ours or name in LEFT_OUT])
KINDS = {
    "namespaces": "Namespace",
    "deviceClasses": "DeviceClass",
    "deviceTaintRules": "DeviceTaintRule",
    "resourceSlices": "ResourceSlice",
    "resourceClaims": "ResourceClaim",
}
COMPILE_ERROR = "CEL compile error:"


def read(path: Path) -> Iterator[dict[str, Any]]:
    data = path.read_bytes()
    for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines():
        if line.strip():
            yield msgspec.json.decode(line)


def engine_of(question: dict[str, Any]) -> Engine:
    engine = Engine([PROFILE])
    engine.tables.clock = time.time
    for node in question["nodes"]:
        engine.set_node(view(node, Node))
    for field, kind in KINDS.items():
        for document in sorted(question.get(field) or (), key=lambda each: each["metadata"]["name"]):
            engine.apply(kind, document)
    for document in question.get("pods") or ():
        engine.set_pod(view(document, Pod))
    return engine


def ours(question: dict[str, Any]) -> dict[str, Any]:
    """Our answer in the form of the cases."""
    engine, pod = engine_of(question), view(question["pod"], Pod)
    answer: dict[str, Any] = {}
    queued = engine.pre_enqueue(pod)
    if not queued.ok:
        answer["preenqueue"] = f"{queued.plugin}: {queued.message}"
    explained = engine.explain(pod)
    if explained.pre_filter is not None:
        status = explained.pre_filter
        return {
            **answer,
            "prefilter": status.message,
            "plugin": status.plugin,
            "code": status.code.value,
            "nodes": {},
        }
    nodes = answer["nodes"] = explained.document()["nodes"]
    if any(status.code is Code.ERROR for status in explained.refused.values()):
        answer["aborted"] = True
        nodes |= {name: {"total": 0} for name in explained.scores}
    elif explained.scores:
        for name in explained.scores:
            # Upstream asks the plugin for a score even where the pod has no claims.
            nodes[name]["scores"].setdefault("DynamicResources", 0)
            nodes[name] |= reserved(engine, pod, name)
    else:
        answer["postfilter"] = post_filter(engine, pod)
    return answer


def reserved(engine: Engine, pod: Pod, node: str) -> dict[str, Any]:
    """What Reserve would take on a node."""
    prepared = engine.profile(pod).answers_for(pod).prepared.by_plugin.get("DynamicResources")
    if not isinstance(prepared, DevicesPrepared):
        return {}
    planned = prepared.plan(engine.tables.row_of[node], lambda: "any")
    if not isinstance(planned, DevicePlan):
        return {}
    found: dict[str, Any] = {"allocations": {name: made for (_, name), made in planned.allocations.items()}}
    if planned.extended is not None:
        found["extended"] = {
            "requests": planned.extended.requests or None,
            "mappings": planned.extended.mappings or None,
        }
    return found


def post_filter(engine: Engine, pod: Pod) -> dict[str, Any]:
    result = engine.preempt(pod)
    diagnosis = engine.schedule(pod).diagnosis
    assert diagnosis is not None
    engine.preempt(pod, diagnosis)
    found: dict[str, Any] = {"code": Code.UNSCHEDULABLE.value}
    if diagnosis.post_filter:
        found["messages"] = [diagnosis.post_filter]
    for write in result.writes:
        if write.verb == "delete":
            found["deleted"] = [write.name]
        elif write.subresource == "status":
            found["deallocated"] = [write.name]
    return found


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], value) for key, value in theirs.items())
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(theirs, str) and isinstance(ours, str) and COMPILE_ERROR in theirs:
        return ours.split(COMPILE_ERROR)[0] == theirs.split(COMPILE_ERROR)[0] and COMPILE_ERROR in ours
    return bool(ours == theirs)


def agree(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    given = theirs.get("postfilter", {}).get("deallocated")
    mine = ours.get("postfilter", {}).get("deallocated")
    if given and mine and mine[0] in given:
        # Upstream picks one of them at random.
        theirs = {**theirs, "postfilter": {**theirs["postfilter"], "deallocated": mine}}
    return same(ours, theirs)


def difference(ours: Any, theirs: Any, path: str = "") -> str:
    """The first part that differs."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted({*ours, *theirs}):
            if not same(ours.get(key), theirs.get(key)):
                return difference(ours.get(key), theirs.get(key), f"{path}.{key}")
    return f"{path}: {ours!r} instead of {theirs!r}"


def test_every_node_gets_the_verdict_scores_and_devices_of_kube_scheduler() -> None:
    path = Path(os.environ.get("WHARF_DRA_CASES") or CASES)
    agreeing, found = 0, []
    for number, case in enumerate(read(path), start=1):
        mine, theirs = ours(case["question"]), case["answer"]
        if agree(mine, theirs):
            agreeing += 1
        else:
            found.append(f"case {number}{difference(mine, theirs)}")
    print(f"{path.name}: {agreeing} of {agreeing + len(found)} cases agree")
    assert not found, f"{agreeing} of {agreeing + len(found)} agree; the first differences:\n" + "\n".join(found[:8])
