"""Runs and times an engine workload."""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Iterable
from time import perf_counter, process_time
from typing import Any

import msgspec

from wharfinger.api.views import Node, Pod, view
from wharfinger.bench.workloads import EVERY, Workload
from wharfinger.engine import Engine


def measure(
    workload: Workload, nodes: int | None, pods: int | None, seed: int, running: int | None = None
) -> dict[str, Any]:
    """Places the initial pods, then times the measured ones: the decision and the update of the tables for each.

    With `running`, the engine starts as that of a scheduler does in a cluster with so many running pods.
    """
    engine = Engine(seed=seed)
    began = process_time()
    feed = None
    if running is not None:
        from wharfinger.bench.generated import start

        feed = start(engine, workload, nodes or workload.nodes, running)
    took = process_time() - began
    for document in workload.node_documents(nodes):
        if feed is None:
            engine.set_node(view(document, Node))
        _tell(engine, workload.with_node(document))
    for name in ("default", "sched-0", "sched-1"):
        engine.apply("Namespace", {"metadata": {"name": name}})
    _tell(engine, workload.objects())
    scale = 1.0 if nodes is None else nodes / workload.nodes
    for document in workload.init_documents(min(scale, 1.0)):
        _tell(engine, workload.with_pod(document))
        _place(engine, view(document, Pod))
    measured = []
    for document in workload.measured_documents(pods):
        _tell(engine, workload.with_pod(document))
        measured.append(view(document, Pod))
    meanwhile = [view(document, Pod) for document in workload.meanwhile_documents(pods)]
    gc.collect()
    gc.freeze()
    work = engine.tables.work
    rows = work.rows
    unplaced, slowest = 0, 0.0
    started = process_time()
    before = perf_counter()
    for index, pod in enumerate(measured):
        if index % EVERY == 0 and meanwhile:
            _place(engine, meanwhile.pop(), preempt=True)
        if not _place(engine, pod, preempt=workload.preempts):
            unplaced += 1
        now = perf_counter()
        if now - before > slowest:
            slowest = now - before
        before = now
    elapsed = process_time() - started
    gc.unfreeze()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "workload": workload.name,
        "nodes": engine.tables.node_count,
        "pods": len(measured),
        "decisions_per_second": round(len(measured) / elapsed),
        "slowest_cycle_ms": round(slowest * 1000, 3),
        "peak_memory_mib": round(peak / (1 << 20) if sys.platform == "darwin" else peak / 1024),
        "rows_recomputed": work.rows - rows,
        "rows_per_decision": round((work.rows - rows) / len(measured), 1),
        "unplaced": unplaced,
        **({} if feed is None else {"running": len(feed.pods), "start_seconds": round(took, 1)}),
    }


def _tell(engine: Engine, documents: Iterable[dict[str, Any]]) -> None:
    for document in documents:
        engine.apply(document["kind"], document)


def _place(engine: Engine, pod: Pod, *, preempt: bool = False) -> bool:
    decision = engine.schedule(pod)
    if decision.node is None:
        if not preempt:
            return False
        result = engine.preempt(pod, decision.diagnosis)
        if result.node is None:
            return False
        for victim in result.victims:
            engine.remove_pod(victim.metadata.namespace, victim.metadata.name)
        engine.set_nominated(pod, result.node)
        pod = msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name=result.node))
        decision = engine.schedule(pod)
        engine.set_nominated(pod, None)
        if decision.node is None:
            return False
    engine.assume(pod, decision.node)
    return True
