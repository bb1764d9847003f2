"""`wharf bench classes`: the cost of device classes, and how it grows with nodes, classes, properties and devices."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from wharfinger.bench.baseline import Results, baseline_options

if TYPE_CHECKING:
    from wharfinger.api.views import Node, Pod
    from wharfinger.engine import Engine

ROUNDS = 5
RAW = "bench.example/device"


@dataclass(frozen=True)
class Size:
    nodes: int
    kinds: int  # ComputeResources per node
    sets: int  # distinct sets of properties in all
    classes: int
    properties: int
    devices: int  # of one ComputeResource


@click.command()
@click.option("--nodes", default=10_000, show_default=True, help="Number of nodes.")
@click.option("--kinds", default=8, show_default=True, help="ComputeResources on each node.")
@click.option("--sets", default=64, show_default=True, help="Distinct sets of properties in the cluster.")
@click.option("--classes", default=200, show_default=True, help="Number of ResourceClasses.")
@click.option("--properties", default=8, show_default=True, help="Properties of a device.")
@click.option("--devices", default=8, show_default=True, help="Devices of a ComputeResource.")
@click.option("--pods", default=2_000, show_default=True, help="Number of decisions to measure.")
@click.option("--only", is_flag=True, help="Only this size; do not measure how the cost grows.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@baseline_options
def command(
    nodes: int,
    kinds: int,
    sets: int,
    classes: int,
    properties: int,
    devices: int,
    pods: int,
    only: bool,
    output: str,
) -> Results:
    """Measure what devices add to a scheduling decision, and how long a changed class takes to reach the next
    decision.

    Engine only, on one core.
    """
    from wharfinger.cli.output import emit, table

    full = Size(nodes, kinds, sets, classes, properties, devices)
    sizes = [full]
    if not only:
        small = replace(full, nodes=max(nodes // 10, 1))
        sizes += [small, replace(small, nodes=max(nodes // 2, 1))]
        sizes += [replace(small, classes=classes * factor) for factor in (5,)]
        sizes += [replace(small, sets=sets * factor) for factor in (8,)]
        sizes += [replace(small, properties=properties * factor) for factor in (8,)]
        sizes += [replace(small, devices=devices * factor) for factor in (16,)]
    rows = [(size, _measure(size, pods)) for size in sizes]
    results: Results = [{**size.__dict__, **found} for size, found in rows]
    if output == "json":
        emit(results, output, kind="Benchmark")
        return results
    header = ("nodes", "kinds", "sets", "classes", "properties", "devices", "plain us", "class us", "more us", "change ms", "next ms")  # fmt: skip
    cells = [
        (
            *size.__dict__.values(),
            f"{found['plainMicroseconds']:.0f}",
            f"{found['classMicroseconds']:.0f}",
            f"{found['moreMicroseconds']:.0f}",
            f"{found['changeMilliseconds']:.2f}",
            f"{found['nextDecisionMilliseconds']:.2f}",
        )
        for size, found in rows
    ]
    click.echo(table(header, cells))
    click.echo("plain, class: a decision without and with a device; change: of a class; next: the decision after it.")
    return results


def _measure(size: Size, pods: int) -> dict[str, float]:
    from wharfinger.engine import Engine

    engine = Engine()
    for index in range(size.nodes):
        engine.set_node(_node(index, size))
    for index in range(size.classes):
        engine.apply("ResourceClass", _class(index, index % size.sets))
    plain = _decisions(engine, "plain", "", pods)
    devices = _decisions(engine, "device", "class-1", min(pods, size.nodes * size.kinds * size.devices // 4))
    changes, nexts = [], []
    for turn in range(5):
        changes.append(_seconds(lambda bound=turn: engine.apply("ResourceClass", _class(1, bound))))
        nexts.append(_seconds(lambda name=turn: engine.schedule(_pod(f"next-{name}", "class-1"))))
    return {
        "plainMicroseconds": plain * 1e6,
        "classMicroseconds": devices * 1e6,
        "moreMicroseconds": (devices - plain) * 1e6,
        "changeMilliseconds": sorted(changes)[2] * 1e3,
        "nextDecisionMilliseconds": sorted(nexts)[2] * 1e3,
    }


def _decisions(engine: Engine, name: str, resource: str, count: int) -> float:
    """Seconds per decision: choosing a node, assuming the pod, and the record for the Binding. The best of several
    rounds, because the machine may be busy."""
    _place(engine, _pod(f"{name}-first", resource))
    best = float("inf")
    for turn in range(ROUNDS):
        pods = [_pod(f"{name}-{turn}-{index}", resource) for index in range(max(count // ROUNDS, 1))]
        gc.collect()
        began = time.perf_counter()
        for pod in pods:
            _place(engine, pod)
        best = min(best, (time.perf_counter() - began) / len(pods))
    return best


def _place(engine: Engine, pod: Pod) -> None:
    decision = engine.schedule(pod)
    if decision.node is None:
        raise click.ClickException("the cluster is too small for so many pods")
    engine.assume(pod, decision.node)
    engine.annotations(pod, decision.node)


def _seconds(work: Any) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _node(index: int, size: Size) -> Node:
    from wharfinger.api.views import Node, view

    resources = []
    for kind in range(size.kinds):
        number = (index * size.kinds + kind) % size.sets
        properties = {f"property-{each}": f"value-{number}" for each in range(size.properties - 1)}
        ids = [f"{kind}-{device}" for device in range(size.devices)]
        resources.append(
            {
                "name": f"{RAW}-{number}-{kind}",
                "resourceName": RAW,
                "properties": {**properties, "memory": f"{number}G"},
                "devices": ids,
            }
        )
    room = {"cpu": "64", "memory": "256Gi", "pods": "1000"}
    status = {"allocatable": room, "computeResources": resources}
    return view({"metadata": {"name": f"node-{index}"}, "status": status}, Node)


def _class(index: int, bound: int) -> dict[str, Any]:
    expressions = [{"key": "memory", "operator": "Gt", "values": [f"{bound}G"]}]
    expressions += [
        {"key": "property-0", "operator": "Exists"},
        {"key": "absent", "operator": "NotIn", "values": ["x"]},
    ]
    spec = {"resourceName": RAW, "resourceSelector": [{"matchExpressions": expressions}]}
    return {"metadata": {"name": f"class-{index}"}, "spec": spec}


def _pod(name: str, resource: str) -> Pod:
    from wharfinger.api.views import Pod, view

    amounts = {"cpu": "10m", **({resource: "1"} if resource else {})}
    container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    return view(
        {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"containers": [container]}}, Pod
    )
