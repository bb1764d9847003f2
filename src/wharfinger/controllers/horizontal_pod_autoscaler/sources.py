"""What each metric of an autoscaler proposes: upstream's computeReplicasForMetric.

Resource metrics come from `metrics.k8s.io`. Metrics of pods, objects and external systems come from adapters of third
parties, which are not part of a cluster; without one they are reported as unavailable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from wharfinger.api.errors import ApiError
from wharfinger.api.quantity import format_nano, milli_value
from wharfinger.api.registry import Document
from wharfinger.api.views import Pod
from wharfinger.controllers.horizontal_pod_autoscaler.replicas import (
    CannotCompute,
    PodMetric,
    Tolerances,
    resource_metrics,
    utilization_replicas,
    value_replicas,
)

NO_CUSTOM_METRICS = "no custom metrics API (custom.metrics.k8s.io) registered"


class MetricUnavailable(Exception):
    """A metric proposes nothing. `reason` and `cause` are for the condition and the event, the message for the whole."""

    def __init__(self, reason: str, cause: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.cause = cause


class MetricProposal(msgspec.Struct, frozen=True):
    replicas: int
    name: str  # for messages
    status: Document


class MetricSources(msgspec.Struct, frozen=True):
    """The metrics of the pods of one target."""

    namespace: str
    pods: Sequence[Pod]
    fetch: Callable[[], Awaitable[Sequence[Document]]]  # PodMetrics of these pods
    tolerances: Tolerances
    now: float

    async def propose(self, metric: Document, current: int) -> MetricProposal:
        """Raises `MetricUnavailable`."""
        match metric.get("type"):
            case "Resource":
                return await self._resource(metric["resource"], current)
            case "ContainerResource":
                return await self._container_resource(metric["containerResource"], current)
            case "Pods":
                name = metric["pods"]["metric"]["name"]
                cause = (
                    f"unable to get metric {name}: unable to fetch metrics from custom metrics API: {NO_CUSTOM_METRICS}"
                )
                raise MetricUnavailable("FailedGetPodsMetric", cause, f"failed to get pods metric value: {cause}")
            case "Object":
                raise self._no_object_metric(metric["object"])
            case "External":
                raise self._no_external_metric(metric["external"])
        cause = f'unknown metric source type "{metric.get("type") or ""}"'
        raise MetricUnavailable("InvalidMetricSourceType", cause, cause)

    async def _resource(self, source: Document, current: int) -> MetricProposal:
        resource = source["name"]
        try:
            replicas, values, name = await self._compute(source, current, "")
        except CannotCompute as error:
            text = f"failed to get {resource} resource metric value: {error}"
            raise MetricUnavailable("FailedGetResourceMetric", str(error), text) from None
        return MetricProposal(replicas, name, {"type": "Resource", "resource": {"name": resource, "current": values}})

    async def _container_resource(self, source: Document, current: int) -> MetricProposal:
        resource, container = source["name"], source["container"]
        try:
            replicas, values, name = await self._compute(source, current, container)
        except CannotCompute as error:
            text = f"failed to get {container} container metric value: {error}"
            raise MetricUnavailable("FailedGetContainerResourceMetric", str(error), text) from None
        status = {"name": resource, "container": container, "current": values}
        return MetricProposal(replicas, name, {"type": "ContainerResource", "containerResource": status})

    async def _compute(self, source: Document, current: int, container: str) -> tuple[int, Document, str]:
        resource, target = source["name"], source["target"]
        if target.get("averageValue") is not None:
            amount = milli_value(target["averageValue"])
            with _computing(f"{resource} usage"):
                metrics = await self._metrics(resource, container)
                proposal = value_replicas(current, amount, resource, self.pods, metrics, self.tolerances, self.now)
            return proposal.replicas, {"averageValue": _quantity(resource, proposal.value)}, f"{resource} resource"
        if target.get("averageUtilization") is None:
            raise CannotCompute(
                "invalid resource metric source: neither an average utilization target nor an average value (usage) "
                "target was set"
            )
        share = target["averageUtilization"]
        with _computing(f"{resource} utilization"):
            metrics = await self._metrics(resource, container)
            proposal = utilization_replicas(
                current, share, resource, container, self.pods, metrics, self.tolerances, self.now
            )
        values = {
            "averageUtilization": proposal.utilization,
            "averageValue": _quantity(resource, proposal.value),
        }
        of_container = "container " if container else ""
        name = f"{resource} {of_container}resource utilization (percentage of request)"
        return proposal.replicas, values, name

    async def _metrics(self, resource: str, container: str) -> dict[str, PodMetric]:
        before = f"unable to get metrics for resource {resource}: "
        try:
            found = await self.fetch()
        except ApiError as error:
            raise CannotCompute(f"{before}unable to fetch metrics from resource metrics API: {error}") from None
        if not found:
            raise CannotCompute(f"{before}no metrics returned from resource metrics API")
        return resource_metrics(found, resource, container)

    def _no_object_metric(self, source: Document) -> MetricUnavailable:
        described, name = source["describedObject"], source["metric"]["name"]
        cause = (
            f"unable to get metric {name}: {described.get('kind')} on {self.namespace} {described.get('name')}/"
            f"unable to fetch metrics from custom metrics API: {NO_CUSTOM_METRICS}"
        )
        inner = (
            f"failed to get {name} object metric: {cause}" if source["target"].get("type") == "AverageValue" else cause
        )
        return MetricUnavailable("FailedGetObjectMetric", cause, f"failed to get object metric value: {inner}")

    def _no_external_metric(self, source: Document) -> MetricUnavailable:
        name, target = source["metric"]["name"], source["target"]
        cause = (
            f"unable to get external metric {self.namespace}/{name}/{_selector(source['metric'].get('selector'))}: "
            "unable to fetch metrics from external metrics API: the server could not find the requested resource "
            f"(get {name}.external.metrics.k8s.io)"
        )
        average = target.get("averageValue") is not None
        inner = f"failed to get {name} external metric" if average else f"failed to get external metric {name}"
        text = f"failed to get {name} external metric value: {inner}: {cause}"
        return MetricUnavailable("FailedGetExternalMetric", cause, text)


@contextmanager
def _computing(what: str) -> Iterator[None]:
    """Says what could not be computed."""
    try:
        yield
    except CannotCompute as error:
        raise CannotCompute(f"failed to get {what}: {error}") from None


def _quantity(resource: str, milli: int) -> str:
    return format_nano(milli * 1_000_000, "binary" if resource == "memory" else "decimal")


def _selector(selector: Document | None) -> str:
    """A label selector as Go prints it."""
    if selector is None:
        return "nil"
    labels = selector.get("matchLabels") or {}
    shown = "".join(f"{key}: {labels[key]}," for key in sorted(labels))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{each.get('key')},Operator:{each.get('operator')},"
        f"Values:[{' '.join(each.get('values') or ())}],}},"
        for each in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{shown}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
