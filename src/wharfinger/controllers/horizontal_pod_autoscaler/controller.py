"""Scales the targets of HorizontalPodAutoscalers: upstream's horizontal.go."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Literal

import msgspec

from wharfinger.api.conditions import is_true
from wharfinger.api.errors import ApiError, Conflict, NotFound
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import CUSTOM_RESOURCE_DEFINITIONS, HORIZONTAL_POD_AUTOSCALERS, POD_METRICS
from wharfinger.api.quantity import parse_nano
from wharfinger.api.registry import Document, Resource
from wharfinger.api.selectors import BadSelector, Requirements, matches, parse_label_selector
from wharfinger.api.times import format_time
from wharfinger.api.views import Pod
from wharfinger.client.informer import Index
from wharfinger.controllers.context import ContextController, ControllerContext
from wharfinger.controllers.horizontal_pod_autoscaler import limits
from wharfinger.controllers.horizontal_pod_autoscaler.replicas import DEFAULT_TOLERANCE, Tolerances
from wharfinger.controllers.horizontal_pod_autoscaler.sources import MetricSources, MetricUnavailable

log = logging.getLogger(__name__)

SYNC_PERIOD = 15.0  # seconds
_CONFLICTS = 5  # attempts to write a scale that others write too
_KEPT = ("lastScaleTime", "conditions")
_NO_SCALE = "the HPA controller was unable to get the target's current scale: "


class CannotScale(Exception):
    """An autoscaler does nothing this time; events and conditions have been recorded."""


class _Sync(msgspec.Struct):
    """One look at an autoscaler: its status as it becomes."""

    document: Document
    status: Document
    now: float
    desired: int | None = None  # what this time's status says; None: as before
    current: int | None = None
    metrics: list[Document] = msgspec.field(default_factory=list)
    rescaled: bool = False
    limit: limits.LimitedScale | None = None

    @property
    def spec(self) -> Document:
        found: Document = self.document["spec"]
        return found

    @property
    def namespace(self) -> str:
        return str(self.document["metadata"]["namespace"])

    def set_condition(self, type: str, holds: bool, reason: str, message: str) -> None:
        conditions: list[Document] = self.status.setdefault("conditions", [])
        status = "True" if holds else "False"
        found = next((each for each in conditions if each["type"] == type), None)
        if found is None:
            found = {"type": type}
            conditions.append(found)
        if found.get("status") != status:
            found["lastTransitionTime"] = format_time(self.now)
        found |= {"status": status, "reason": reason, "message": message}

    def set_replicas(self) -> None:
        """Completes the status. Without a new desired count, the one from before stays."""
        if self.current is None:
            return
        kept: Document = {key: self.status[key] for key in _KEPT if key in self.status}
        desired = (self.status.get("desiredReplicas") or 0) if self.desired is None else self.desired
        made: Document = {"currentReplicas": self.current, "desiredReplicas": desired, **kept}
        made["currentMetrics"] = self.metrics or None
        if not self.current:
            del made["currentReplicas"]
        if self.rescaled:
            made["lastScaleTime"] = format_time(self.now)
        self.status = made


class HorizontalPodAutoscalerController(ContextController[ObjectKey]):
    name = "horizontalpodautoscaling"
    workers = 5

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._autoscalers = context.documents(HORIZONTAL_POD_AUTOSCALERS)
        self._definitions = context.documents(CUSTOM_RESOURCE_DEFINITIONS)
        self._pods = context.pods
        self._by_namespace: Index[Pod] | None = None  # made when the first autoscaler needs it
        self._selectors: dict[ObjectKey, Requirements] = {}
        self._history: dict[ObjectKey, limits.ScaleHistory] = {}
        self._synced: dict[ObjectKey, float] = {}  # loop time of the last sync
        self._autoscalers.add_handler(self._seen, self._changed, self._gone)

    def _seen(self, document: Document) -> None:
        self.queue.add_after(_key(document), SYNC_PERIOD)

    def _changed(self, old: Document, new: Document) -> None:
        if old.get("spec") != new.get("spec"):
            self._seen(new)

    def _gone(self, document: Document) -> None:
        key = _key(document)
        for known in (self._selectors, self._history, self._synced):
            known.pop(key, None)

    async def reconcile(self, key: ObjectKey) -> None:
        document = self._autoscalers.get(key[1], key[0])
        if document is None:
            return
        now = self.context.now()
        left = self._synced.get(key, 0.0) + SYNC_PERIOD - now
        if 0.001 < left <= SYNC_PERIOD:
            self.queue.add_after(key, left)
            return
        self._synced[key] = now
        sync = _Sync(document, deepcopy(document.get("status") or {}), now)
        busy = False
        try:
            await self._scale(key, sync)
        except CannotScale as error:
            log.info("%s/%s: %s", *key, error)
        try:
            busy = await self._write(key, sync)
        finally:
            # The next sync only keeps a simulation busy while there is something to wait for.
            self.queue.add_after(key, SYNC_PERIOD, background=not (busy or _is_waiting(sync)))

    # One sync

    async def _scale(self, key: ObjectKey, sync: _Sync) -> None:
        spec, target = sync.spec, sync.spec["scaleTargetRef"]
        reference = f"{target.get('kind')}/{sync.namespace}/{target.get('name')}"
        resource, scale = await self._get_scale(sync, target)
        sync.set_condition(
            "AbleToScale", True, "SucceededGetScale", "the HPA controller was able to get the target's current scale"
        )
        current = (scale.get("spec") or {}).get("replicas") or 0
        history = self._history.setdefault(key, limits.ScaleHistory([(sync.now, current)]))
        least = 1 if spec.get("minReplicas") is None else spec["minReplicas"]
        most = spec["maxReplicas"]
        sync.current = current
        reason = ""
        if current == 0:
            text = "scaling is disabled since the replica count of the target is zero"
            sync.set_condition("ScalingActive", False, "ScalingDisabled", text)
            sync.desired = 0
            sync.set_replicas()
            return
        if current > most:
            desired, reason = most, "Current number of replicas above Spec.MaxReplicas"
        elif current < least:
            desired, reason = least, "Current number of replicas below Spec.MinReplicas"
        else:
            proposed, metric = await self._by_metrics(key, sync, scale, current, reference)
            if proposed > current:
                reason = f"{metric} above target"
            elif proposed < current:
                reason = "All metrics below target"
            limit = limits.limited(history, current, proposed, least, most, spec.get("behavior"), sync.now)
            sync.limit = limit
            sync.set_condition("AbleToScale", True, *limit.able)
            sync.set_condition("ScalingLimited", limit.limits, *limit.limited)
            desired = limit.replicas
        if desired != current:
            await self._set_scale(sync, resource, scale, desired, reason)
            history.scaled(current, desired, spec.get("behavior"), sync.now)
            sync.rescaled = True
        sync.desired = desired
        sync.set_replicas()

    async def _get_scale(self, sync: _Sync, target: Document) -> tuple[Resource, Document]:
        try:
            resource = self._target_resource(target)
            found = await self.client.get(resource, target.get("name") or "", sync.namespace, subresource="scale")
        except (ApiError, _NoMatch) as error:
            self._event(sync, "Warning", "FailedGetScale", str(error))
            sync.set_condition("AbleToScale", False, "FailedGetScale", f"{_NO_SCALE}{error}")
            raise CannotScale(f"failed to query scale subresource: {error}") from None
        return resource, found

    def _target_resource(self, target: Document) -> Resource:
        """The resource of a scale target, by its group and kind."""
        group = (target.get("apiVersion") or "").rpartition("/")[0]
        wanted = target.get("kind") or ""
        for kind in self.context.registry:
            if kind.kind == wanted and group in (kind.group, *kind.alias_groups):
                return kind.resource(group=group)
        for definition in self._definitions:
            spec = definition["spec"]
            if (spec["group"], spec["names"]["kind"]) == (group, wanted) and _is_established(definition):
                version = next((each["name"] for each in spec["versions"] if each.get("served")), "")
                return Resource(group, version, spec["names"]["plural"], wanted, spec.get("scope") == "Namespaced")
        raise _NoMatch(f'no matches for kind "{wanted}" in group "{group}"')

    async def _by_metrics(
        self, key: ObjectKey, sync: _Sync, scale: Document, current: int, reference: str
    ) -> tuple[int, str]:
        """The highest proposal of all metrics, and the name of its metric."""
        try:
            return await self._propose(key, sync, scale, current)
        except CannotScale as error:
            sync.set_replicas()
            self._event(sync, "Warning", "FailedComputeMetricsReplicas", str(error))
            raise CannotScale(
                f"failed to compute desired number of replicas based on listed metrics for {reference}: {error}"
            ) from None

    async def _propose(self, key: ObjectKey, sync: _Sync, scale: Document, current: int) -> tuple[int, str]:
        text = (scale.get("status") or {}).get("selector") or ""
        pods = self._selected(key, sync, text)
        fetch = _Fetched(partial(self._pod_metrics, sync.namespace, text))
        sources = MetricSources(sync.namespace, pods, fetch, _tolerances(sync.spec.get("behavior")), sync.now)
        best, best_name = 0, ""
        failures: list[MetricUnavailable] = []
        metrics = sync.spec.get("metrics") or []
        for metric in metrics:
            try:
                proposal = await sources.propose(metric, current)
            except MetricUnavailable as error:
                self._event(sync, "Warning", error.reason, error.cause)
                failures.append(error)
                sync.metrics.append({"type": ""})
                continue
            sync.metrics.append(proposal.status)
            if best == 0 or proposal.replicas > best:
                best, best_name = proposal.replicas, proposal.name
        if failures and (len(failures) == len(metrics) or best < current):
            first = failures[0]
            message = f"the HPA was unable to compute the replica count: {first.cause}"
            sync.set_condition("ScalingActive", False, first.reason, message)
            raise CannotScale(
                f"invalid metrics ({len(failures)} invalid out of {len(metrics)}), first error is: {first}"
            )
        message = f"the HPA was able to successfully calculate a replica count from {best_name}"
        sync.set_condition("ScalingActive", True, "ValidMetricFound", message)
        return best, best_name

    def _selected(self, key: ObjectKey, sync: _Sync, text: str) -> list[Pod]:
        """The pods of the target, which no other autoscaler may have."""
        if not text:
            self._event(sync, "Warning", "SelectorRequired", "selector is required")
            message = "the HPA target's scale is missing a selector"
            sync.set_condition("ScalingActive", False, "InvalidSelector", message)
            raise CannotScale("selector is required")
        try:
            selector = parse_label_selector(text)
        except BadSelector as error:
            message = f"couldn't convert selector into a corresponding internal selector object: {error}"
            self._event(sync, "Warning", "InvalidSelector", message)
            sync.set_condition("ScalingActive", False, "InvalidSelector", message)
            raise CannotScale(message) from None
        self._selectors[key] = selector
        if self._by_namespace is None:
            self._by_namespace = self._pods.index("namespace", lambda pod: (pod.metadata.namespace,))
        pods = [pod for pod in self._by_namespace.get(sync.namespace) if matches(selector, pod.metadata.labels)]
        claimants = [
            other
            for other, requirements in self._selectors.items()
            if other[0] == sync.namespace and any(matches(requirements, pod.metadata.labels) for pod in pods)
        ]
        if len(claimants) > 1:
            names = " ".join(f"{{{name} {namespace}}}" for namespace, name in sorted(claimants))
            message = f"pods by selector {text} are controlled by multiple HPAs: [{names}]"
            self._event(sync, "Warning", "AmbiguousSelector", message)
            sync.set_condition("ScalingActive", False, "AmbiguousSelector", message)
            raise CannotScale(message)
        return pods

    async def _pod_metrics(self, namespace: str, selector: str) -> Sequence[Document]:
        return (await self.client.list(POD_METRICS, namespace, label_selector=selector)).items

    async def _set_scale(self, sync: _Sync, resource: Resource, scale: Document, desired: int, reason: str) -> None:
        name = sync.spec["scaleTargetRef"]["name"]
        try:
            for attempt in range(_CONFLICTS):
                changed = {**scale, "spec": {**(scale.get("spec") or {}), "replicas": desired}}
                try:
                    await self.client.update(resource, changed, sync.namespace, name=name, subresource="scale")
                    break
                except Conflict:
                    if attempt == _CONFLICTS - 1:
                        raise
                    scale = await self.client.get(resource, name, sync.namespace, subresource="scale")
        except ApiError as error:
            self._event(sync, "Warning", "FailedRescale", f"New size: {desired}; reason: {reason}; error: {error}")
            message = f"the HPA controller was unable to update the target scale: {error}"
            sync.set_condition("AbleToScale", False, "FailedUpdateScale", message)
            sync.set_replicas()
            raise CannotScale(f"failed to rescale: {error}") from None
        message = f"the HPA controller was able to update the target scale to {desired}"
        sync.set_condition("AbleToScale", True, "SucceededRescale", message)
        self._event(sync, "Normal", "SuccessfulRescale", f"New size: {desired}; reason: {reason}")

    async def _write(self, key: ObjectKey, sync: _Sync) -> bool:
        """Writes a status that has changed; returns whether it had."""
        if (sync.document.get("status") or {}) == sync.status:
            return False
        changed = {**sync.document, "status": sync.status}
        try:
            await self.client.update(HORIZONTAL_POD_AUTOSCALERS, changed, key[0], name=key[1], subresource="status")
        except NotFound:
            return False
        except ApiError as error:
            self._event(sync, "Warning", "FailedUpdateStatus", str(error))
            log.info("%s/%s: failed to update status: %s", *key, error)
        return True

    def _event(self, sync: _Sync, type: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        self.context.recorder.event(HORIZONTAL_POD_AUTOSCALERS, sync.document, type, reason, message)


class _NoMatch(Exception):
    """There is no resource of the kind."""


class _Fetched:
    """Metrics of all pods of a target, requested once for all metrics of an autoscaler."""

    def __init__(self, fetch: Callable[[], Awaitable[Sequence[Document]]]) -> None:
        self._fetch = fetch
        self._found: Sequence[Document] | None = None

    async def __call__(self) -> Sequence[Document]:
        if self._found is None:
            self._found = await self._fetch()
        return self._found


def _key(document: Document) -> ObjectKey:
    return document["metadata"]["namespace"], document["metadata"]["name"]


def _is_established(definition: Document) -> bool:
    return is_true((definition.get("status") or {}).get("conditions") or (), "Established")


def _is_waiting(sync: _Sync) -> bool:
    """Whether a stabilization window or a rate of change has yet to pass before the autoscaler does what it wants to."""
    limit, behavior = sync.limit, sync.spec.get("behavior") or {}
    if limit is None:
        return False
    if limit.able in (limits.SCALE_UP_STABILIZED, limits.SCALE_DOWN_STABILIZED):
        return True
    rules = {limits.SCALE_UP_LIMIT: "scaleUp", limits.SCALE_DOWN_LIMIT: "scaleDown"}.get(limit.limited)
    return rules is not None and (behavior.get(rules) or {}).get("selectPolicy") != "Disabled"


def _tolerances(behavior: Document | None) -> Tolerances:
    def of(name: str) -> float:
        stated = ((behavior or {}).get(name) or {}).get("tolerance")
        return DEFAULT_TOLERANCE if stated is None else parse_nano(stated) / 10**9

    return Tolerances(of("scaleDown"), of("scaleUp"))
