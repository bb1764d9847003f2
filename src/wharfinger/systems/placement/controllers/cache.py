"""The placement controller's cache: the fleet, plans and scopes, and which placements a change affects.

Updated by informers and by the controller's own writes, whichever is newer. Only changes that can affect a decision
queue the placement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wharfinger.api.keys import ObjectKey
from wharfinger.api.registry import Document
from wharfinger.api.times import BadTime, parse_time
from wharfinger.api.views.base import view
from wharfinger.systems.placement.kinds.views import (
    AddOnPlacementScore,
    ManagedCluster,
    ManagedClusterSet,
    ManagedClusterSetBinding,
    Placement,
    PlacementDecision,
)
from wharfinger.systems.placement.rules.capacity import read_answer
from wharfinger.systems.placement.rules.fleet import Fleet
from wharfinger.systems.placement.rules.plan import Facet, Misconfiguration, PlacementPlan, make_plan
from wharfinger.systems.placement.rules.scope import EligibleSets, compile_sets, scope_of
from wharfinger.systems.placement.rules.selectors import Selector

_ANSWER = ""  # in place of the name of a score: the answer about capacity


class PlacementCache:
    def __init__(self, queue: Callable[[ObjectKey], None], now: Callable[[], float]) -> None:
        self.fleet = Fleet()
        self.placements: dict[ObjectKey, Placement] = {}
        self.pages: dict[ObjectKey, dict[str, PlacementDecision]] = {}
        self._owners: dict[ObjectKey, ObjectKey] = {}  # page → placement
        self._queue = queue
        self._now = now
        self._versions: dict[tuple[str, ObjectKey], int] = {}  # latest resource version of each placement and page
        self._writing: dict[tuple[str, ObjectKey], int] = {}  # our writes in flight → latest version seen since
        self._sets: dict[str, ManagedClusterSet] = {}
        self._selectors: dict[str, Selector] = {}
        self._bound: dict[str, set[str]] = {}
        self._scope_memo: dict[tuple[str, tuple[str, ...]], EligibleSets] = {}
        self._plans: dict[ObjectKey, PlacementPlan] = {}
        self._scopes: dict[ObjectKey, EligibleSets] = {}
        # Placements grouped by scope and by the cluster facets that they depend on.
        self._in_scope: dict[EligibleSets, dict[frozenset[Facet], set[ObjectKey]]] = {}
        self._listed: dict[ObjectKey, tuple[EligibleSets, frozenset[Facet]]] = {}
        self._readers: dict[str, set[ObjectKey]] = {}  # placements by score resource name
        self._cel_readers: set[ObjectKey] = set()

    # Inputs of a decision

    def plan(self, key: ObjectKey) -> PlacementPlan:
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = make_plan(self.placements[key])
            for resource in plan.score_resources:
                self._readers.setdefault(resource, set()).add(key)
            if plan.reads_all_scores:
                self._cel_readers.add(key)
        return plan

    def scope(self, key: ObjectKey) -> EligibleSets:
        found = self.scope_for(key[0], self.placements[key].spec.cluster_sets)
        listing = (found, self.plan(key).facets)
        if self._listed.get(key) != listing:
            self._unlist(key)
            self._scopes[key] = found
            self._listed[key] = listing
            self._in_scope.setdefault(found, {}).setdefault(listing[1], set()).add(key)
        return found

    def _unlist(self, key: ObjectKey) -> None:
        listing = self._listed.pop(key, None)
        self._scopes.pop(key, None)
        if listing is not None:
            self._in_scope[listing[0]][listing[1]].discard(key)

    def scope_for(self, namespace: str, requested: tuple[str, ...]) -> EligibleSets:
        memo = (namespace, requested)
        if memo not in self._scope_memo:
            self._scope_memo[memo] = scope_of(requested, self._bound.get(namespace, ()), self._selectors)
        return self._scope_memo[memo]

    def _forget(self, key: ObjectKey) -> None:
        plan = self._plans.pop(key, None)
        if plan is not None:
            for resource in plan.score_resources:
                self._readers[resource].discard(key)
            self._cel_readers.discard(key)

    # Placements

    def put_placement(self, placement: Placement, *, ours: bool = False) -> None:
        """`ours`: the response to our own write, which needs no new decision."""
        key = placement.metadata.key
        old = self.placements.get(key)
        if ours and (old is None or old.metadata.uid != placement.metadata.uid):
            return  # deleted before the response came
        if not self._newer("placement", key, placement.metadata.resource_version):
            return
        self.placements[key] = placement
        respecified = (
            old is None
            or old.spec != placement.spec
            or old.metadata.annotations != placement.metadata.annotations
            or old.metadata.uid != placement.metadata.uid
        )
        if respecified:
            self._forget(key)
        if respecified or (
            not ours
            and old is not None
            and old.status != placement.status
            and not self._ours_in_flight("placement", key)
        ):
            self._queue(key)

    def remove_placement(self, placement: Placement) -> None:
        key = placement.metadata.key
        known = self.placements.get(key)
        if known is not None and known.metadata.uid != placement.metadata.uid:
            return
        self.placements.pop(key, None)
        self._versions.pop(("placement", key), None)
        self._forget(key)
        self._unlist(key)

    # Pages

    def put_page(self, page: PlacementDecision, *, ours: bool = False) -> None:
        key = page.metadata.key
        if not self._newer("page", key, page.metadata.resource_version):
            return
        self.fleet.put_decision(page)
        told = ours or self._ours_in_flight("page", key)
        before, owner = self._owners.get(key), _owner(page)
        if before is not None and before != owner:
            self._disown(key, before, told=told)
        if owner is not None:
            self._owners[key] = owner
            self.pages.setdefault(owner, {})[key[1]] = page
            if not told:
                self._queue(owner)

    def remove_page(self, page: PlacementDecision, *, ours: bool = False) -> None:
        key = page.metadata.key
        if ("page", key) in self._writing:
            # The response to our write, which is older than the deletion, must not bring the page back.
            self._newer("page", key, page.metadata.resource_version)
        elif not ours:
            self._versions.pop(("page", key), None)
        self.fleet.remove_decision(*key)
        owner = self._owners.get(key)
        if owner is not None:
            self._disown(key, owner, told=ours)

    def _disown(self, key: ObjectKey, owner: ObjectKey, *, told: bool) -> None:
        del self._owners[key]
        self.pages[owner].pop(key[1], None)
        if not told:
            self._queue(owner)

    def deleted_by_us(self, page: PlacementDecision, version: str) -> None:
        """Removes the page at this version; older watch events for it are ignored."""
        self._newer("page", page.metadata.key, version)
        self.remove_page(page, ours=True)

    # Our own writes, whose watch event may arrive before the response

    def begin_write(self, kind: str, key: ObjectKey) -> None:
        self._writing[kind, key] = 0

    def end_write(self, kind: str, key: ObjectKey, owner: ObjectKey, version: str) -> None:
        """`version` is the version that our write created, empty if it failed. If a newer one was seen, another client
        wrote the object, and the placement is queued."""
        seen = self._writing.pop((kind, key), 0)
        if seen > (int(version) if version.isdigit() else 0):
            self._queue(owner)

    def _ours_in_flight(self, kind: str, key: ObjectKey) -> bool:
        if (kind, key) not in self._writing:
            return False
        self._writing[kind, key] = self._versions.get((kind, key), 0)
        return True

    def _newer(self, kind: str, key: ObjectKey, version: str) -> bool:
        number = int(version) if version.isdigit() else 0
        if number and number <= self._versions.get((kind, key), 0):
            return False
        self._versions[kind, key] = number
        return True

    # Sets and bindings

    def put_set(self, cluster_set: ManagedClusterSet) -> None:
        old = self._sets.get(cluster_set.metadata.name)
        self._sets[cluster_set.metadata.name] = cluster_set
        if old is None or old.spec != cluster_set.spec:
            self._rescope()

    def remove_set(self, cluster_set: ManagedClusterSet) -> None:
        if self._sets.pop(cluster_set.metadata.name, None) is not None:
            self._rescope()

    def put_binding(self, binding: ManagedClusterSetBinding) -> None:
        namespace, name = binding.metadata.key
        bound = self._bound.setdefault(namespace, set())
        if name not in bound:
            bound.add(name)
            self._rescope(namespace)

    def remove_binding(self, binding: ManagedClusterSetBinding) -> None:
        namespace, name = binding.metadata.key
        self._bound.get(namespace, set()).discard(name)
        self._rescope(namespace)

    def _rescope(self, namespace: str | None = None) -> None:
        """Queues the placements whose eligible sets changed."""
        if namespace is None:
            self._selectors, _ = compile_sets(self._sets.values())
        self._scope_memo.clear()
        for key, before in self._scopes.items():
            placement = self.placements.get(key)
            if placement is not None and (namespace is None or key[0] == namespace):
                if self.scope_for(key[0], placement.spec.cluster_sets) != before:
                    self._queue(key)

    # Clusters

    def put_cluster(self, document: Document) -> None:
        cluster = view(document, ManagedCluster)
        row = self.fleet.row_of.get(cluster.metadata.name)
        old = None if row is None else self.fleet.clusters[row]
        self.fleet.put_cluster(document, cluster)
        self._cluster_changed(old, cluster)

    def remove_cluster(self, document: Document) -> None:
        row = self.fleet.row_of.get(document["metadata"]["name"])
        old = None if row is None else self.fleet.clusters[row]
        self.fleet.remove_cluster(document["metadata"]["name"])
        self._cluster_changed(old, None)

    def _cluster_changed(self, old: ManagedCluster | None, new: ManagedCluster | None) -> None:
        facets = _changed_facets(old, new)
        for scope, by_facets in self._in_scope.items():
            before, after = _inside(scope, old), _inside(scope, new)
            for looked_at, keys in by_facets.items():
                if before != after or (after and looked_at & facets):
                    for key in sorted(keys):
                        self._queue(key)

    # Scores

    def put_score(self, old: AddOnPlacementScore | None, score: AddOnPlacementScore) -> None:
        self.fleet.put_score(score)
        self._score_changed(old, score)

    def remove_score(self, score: AddOnPlacementScore) -> None:
        self.fleet.remove_score(*score.metadata.key)
        self._score_changed(score, None)

    def _score_changed(self, old: AddOnPlacementScore | None, new: AddOnPlacementScore | None) -> None:
        """Queues the placements that read the score. Renewing scores that are still valid changes nothing."""
        now = self._now()
        before, after = _valid_content(old, now), _valid_content(new, now)
        score = new or old
        assert score is not None
        cluster, resource = score.metadata.key
        appeared = (before is None) != (after is None)
        changed = {
            name for name in {*(before or {}), *(after or {})} if (before or {}).get(name) != (after or {}).get(name)
        }
        sooner = after is not None and old is not None and new is not None and _until(new) < _until(old)
        # Warnings name expired scores, so validity changes count even if values are 0.
        if not (appeared or changed or sooner):
            return
        row = self.fleet.row_of.get(cluster)
        known = None if row is None else self.fleet.clusters[row]
        inside: dict[EligibleSets, bool] = {}
        for key in sorted(self._readers.get(resource, set()) | self._cel_readers):
            scope = self._scopes.get(key)
            if scope is None:
                continue
            if scope not in inside:
                inside[scope] = _inside(scope, known)
            if inside[scope] and (
                key in self._cel_readers or appeared or sooner or self._reads(key, resource, changed)
            ):
                self._queue(key)

    def _reads(self, key: ObjectKey, resource: str, names: set[str]) -> bool:
        plan = self._plans[key]
        if plan.capacity_resource == resource and _ANSWER in names:
            return True
        prioritizers: Any = () if isinstance(plan.prioritizers, Misconfiguration) else plan.prioritizers
        return any(p.resource_name == resource and p.score_name in names for p in prioritizers)


def _owner(page: PlacementDecision) -> ObjectKey | None:
    """The placement that a page belongs to: its controller owner reference, else its label."""
    controller = page.metadata.controller
    if controller is not None and controller.kind == "Placement":
        return page.metadata.namespace, controller.name
    return (page.metadata.namespace, page.placement) if page.placement else None


def _inside(scope: EligibleSets, cluster: ManagedCluster | None) -> bool:
    return (
        cluster is not None
        and not cluster.metadata.deletion_timestamp
        and any(selector.matches(cluster.metadata.labels, {}) for selector in scope.selectors)
    )


def _changed_facets(old: ManagedCluster | None, new: ManagedCluster | None) -> frozenset[Facet]:
    if old is None or new is None:
        return frozenset(Facet)
    changed = {Facet.OTHER}
    if old.metadata.labels != new.metadata.labels:
        changed.add(Facet.LABELS)
    if old.status.cluster_claims != new.status.cluster_claims:
        changed.add(Facet.CLAIMS)
    if old.spec.taints != new.spec.taints:
        changed.add(Facet.TAINTS)
    if (old.status.allocatable, old.status.capacity) != (new.status.allocatable, new.status.capacity):
        changed.add(Facet.RESOURCES)
    return frozenset(changed)


def _until(score: AddOnPlacementScore) -> float:
    try:
        return parse_time(score.status.valid_until) if score.status.valid_until else float("inf")
    except BadTime:
        return float("inf")


def _valid_content(score: AddOnPlacementScore | None, now: float) -> dict[str, Any] | None:
    """The scores by name, and the answer about capacity."""
    if score is None or now > _until(score):
        return None
    return {_ANSWER: read_answer(score), **{item.name: item.value for item in score.status.scores}}
