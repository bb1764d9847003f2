"""Resource metrics (`metrics.k8s.io`) of simulated nodes and of the pods on them. Pure.

There is nothing to measure: a container uses what it requests, unless its pod has the annotation `wharfinger.dev/usage`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.quantity import BadQuantity, family, format_nano, parse_nano
from wharfinger.api.registry import Document, Resource
from wharfinger.api.times import format_time
from wharfinger.node.annotations import DOWN, USAGE, is_true, node_is_simulated

WINDOW = "15s"
_RESOURCES = ("cpu", "memory")

Scan = Callable[[Resource, str], Iterable[Document]]
"""All objects of a kind in a namespace, or in all of them."""


class SimulatedMetrics:
    """What `metrics.k8s.io` answers. With `everything`, all nodes are simulated, as in a simulation."""

    def __init__(self, scan: Scan, now: Callable[[], float], *, everything: bool = False) -> None:
        self._scan = scan
        self._now = now
        self._everything = everything

    def pods(self, namespace: str) -> Iterator[Document]:
        """PodMetrics of the running pods."""
        stamp = format_time(self._now())
        nodes = self._nodes()
        for pod in self._scan(PODS, namespace):
            containers = _containers(pod) if (pod.get("spec") or {}).get("nodeName") in nodes else []
            if containers:
                yield {
                    "apiVersion": "metrics.k8s.io/v1beta1",
                    "kind": "PodMetrics",
                    "metadata": _metadata(pod, stamp),
                    "timestamp": stamp,
                    "window": WINDOW,
                    "containers": containers,
                }

    def nodes(self, namespace: str = "") -> Iterator[Document]:
        """NodeMetrics of the nodes that are up: the sum of their pods, unless annotated."""
        stamp = format_time(self._now())
        nodes = self._nodes()
        used: dict[str, dict[str, int]] = {name: dict.fromkeys(_RESOURCES, 0) for name in nodes}
        for pod in self._scan(PODS, ""):
            total = used.get((pod.get("spec") or {}).get("nodeName") or "")
            for container in _containers(pod) if total is not None else ():
                for resource, quantity in container["usage"].items():
                    if total is not None:
                        total[resource] = total.get(resource, 0) + parse_nano(quantity)
        for name, node in nodes.items():
            capacity = (node.get("status") or {}).get("capacity") or {}
            shown = {resource: _text(resource, amount) for resource, amount in used[name].items()}
            shown |= {
                resource: _amount(text, capacity.get(resource))
                for container, resource, text in _stated(node)
                if not container
            }
            yield {
                "apiVersion": "metrics.k8s.io/v1beta1",
                "kind": "NodeMetrics",
                "metadata": _metadata(node, stamp),
                "timestamp": stamp,
                "window": WINDOW,
                "usage": shown,
            }

    def _nodes(self) -> dict[str, Document]:
        """The simulated nodes that answer."""
        return {
            node["metadata"]["name"]: node
            for node in self._scan(NODES, "")
            if (self._everything or node_is_simulated(node))
            and not is_true((node["metadata"].get("annotations") or {}).get(DOWN))
        }


def _metadata(document: Document, stamp: str) -> Document:
    metadata = document["metadata"]
    shown = {key: metadata[key] for key in ("name", "namespace", "labels") if metadata.get(key)}
    return {**shown, "creationTimestamp": stamp}


def _containers(pod: Document) -> list[Document]:
    """The usage of the containers of a pod that run."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    if status.get("phase") != "Running":
        return []
    statuses = (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ()))
    running = {each.get("name") for each in statuses if (each.get("state") or {}).get("running") is not None}
    sidecars = (each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always")
    candidates = [each for each in (*(spec.get("containers") or ()), *sidecars) if each["name"] in running]
    stated = list(_stated(pod))
    of_pod = (spec.get("resources") or {}).get("requests") or {}
    return [
        {"name": each["name"], "usage": _usage(each, stated, of_pod if index == 0 else {})}
        for index, each in enumerate(candidates)
    ]


def _usage(container: Document, stated: list[tuple[str, str, str]], of_pod: Mapping[str, str]) -> dict[str, str]:
    """Requests, or what is stated. Requests of the pod that its containers do not divide count for the first one."""
    requests = {**of_pod, **((container.get("resources") or {}).get("requests") or {})}
    used = {resource: _amount("100%", requests.get(resource)) for resource in _RESOURCES}
    for name, resource, text in stated:
        if name in ("", container["name"]):
            used[resource] = _amount(text, requests.get(resource))
    return used


def _stated(document: Document) -> Iterator[tuple[str, str, str]]:
    """The parts of the annotation: container (empty: all), resource and amount. Those that cannot be read are left out."""
    text = (document["metadata"].get("annotations") or {}).get(USAGE) or ""
    for part in text.split(","):
        name, equals, amount = part.strip().partition("=")
        container, _, resource = name.rpartition("/")
        try:
            parse_nano(amount.strip().removesuffix("%"))
        except (BadQuantity, ValueError, OverflowError):
            continue
        if equals and resource in _RESOURCES:
            yield container, resource, amount.strip()


def _amount(text: str, whole: str | int | float | None) -> str:
    """A quantity, or a percentage of another one."""
    if not text.endswith("%"):
        return format_nano(parse_nano(text), family(text))
    if whole is None:
        return "0"
    share = parse_nano(text[:-1])  # a percentage of 10**9 per cent
    return format_nano(parse_nano(whole) * share // (100 * 10**9), family(whole))


def _text(resource: str, nano: int) -> str:
    return format_nano(nano, "binary" if resource == "memory" else "decimal")
