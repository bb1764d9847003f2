"""What the scheduler knows about devices: slices, classes, claims and taint rules, and which devices are in use.

One catalogue serves the plugins of all profiles. It also holds what the scheduler has chosen but not written yet, so that
no other pod gets these devices, and it tells the tables which rows must be evaluated again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from wharfinger.api.keys import ObjectKey
from wharfinger.api.views import Node, Pod
from wharfinger.devices.claims import Claim
from wharfinger.devices.classes import DeviceClass, DeviceClasses
from wharfinger.devices.extended import made_uid, owner_of_made
from wharfinger.devices.held_record import recorded_devices
from wharfinger.devices.pod_claims import claim_keys
from wharfinger.devices.pools import Pool, PoolError, Views, gather_pools
from wharfinger.devices.slices import Document, PoolID, Slice
from wharfinger.devices.usage import DeviceUsage
from wharfinger.framework.stand_ins import StandIn
from wharfinger.framework.tables import EVERY_NAMESPACE, PodOnNode, Tables
from wharfinger.plugins.dynamic_resources.held_devices import HeldDevices

CLAIM = "ResourceClaim"
CLASS = "DeviceClass"
SLICE = "ResourceSlice"
TAINT_RULE = "DeviceTaintRule"
TEMPLATE = "ResourceClaimTemplate"  # read for stand-ins only: controllers make the claims of pods
KINDS = (CLAIM, CLASS, SLICE, TAINT_RULE, TEMPLATE)
MOST_GONE = 4096  # deleted claims that are remembered


class RowPools:
    """The pools of a row. `version` moves when their devices are taken or given back."""

    __slots__ = ("error", "node", "pools", "version")

    def __init__(self, node: Node, pools: list[Pool], error: str = "") -> None:
        self.node = node
        self.pools = pools
        self.error = error
        self.version = 0


class DeviceCatalogue:
    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.classes = DeviceClasses()
        tables.by_devices = self.classes.served
        self.claims: dict[ObjectKey, Claim] = {}
        self._by_uid: dict[str, Claim] = {}
        self.templates: dict[ObjectKey, Document] = {}
        self.usage = DeviceUsage()
        self.holds = HeldDevices(self.usage, self.claims.get)
        self.pending: dict[str, Document] = {}  # claim UID to what was chosen for it and is not written yet
        self.reserved: dict[ObjectKey, Any] = {}  # by assumed pod; written by the plugin
        self.freed: ObjectKey | None = None  # the claim that was reported last, if it gave devices back
        self.failing: set[Hashable] = set()  # needs for which a search failed
        self._made: dict[tuple[str, str], dict[ObjectKey, Claim]] = {}  # by pod: claims for its extended resources
        self._gone: dict[
            str, None
        ] = {}  # UIDs of claims that were deleted last, so that late answers do not revive them
        self._rules: dict[str, Document] = {}
        self._slices: dict[str, Slice] = {}
        self._of_node: dict[str, dict[str, Slice]] = {}
        self._shared: dict[str, Slice] = {}  # those that name no node
        self._of_pool: dict[PoolID, list[Slice]] = {}
        self._views: dict[PoolID, Views] = {}
        self._pools: dict[int, RowPools] = {}  # by row
        self._rows: dict[PoolID, set[int]] = {}  # rows for which the pool was gathered
        self._seen: dict[tuple[str, ObjectKey], Any] = {}
        self._changes: Mapping[str, Callable[[str, Any], None]] = {
            CLASS: self._class_changed,
            SLICE: self._slice_changed,
            TAINT_RULE: self._rule_changed,
        }

    # -- objects

    def observe(self, kind: str, old: Any, new: Any) -> None:
        """Takes in a change; several plugins report the same one, only the first has an effect."""
        metadata = (old if new is None else new)["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        if self._seen.get((kind, key)) is new:
            return
        if new is None:
            del self._seen[kind, key]
        else:
            self._seen[kind, key] = new
        if kind == CLAIM:
            had_devices = self._has_devices(key)
            self._claim_changed(key, None if new is None else Claim(new))
            self.freed = key if had_devices and not self._has_devices(key) else None
        elif kind == TEMPLATE:
            self._template_changed(key, new)
        else:
            self._changes[kind](key[1], new)

    def assume(self, document: Document) -> None:
        """A claim as the API server returned it. Watches may have reported a newer state already."""
        claim = Claim(document)
        if claim.uid not in self._gone:
            self._claim_changed(claim.key, claim)

    def gone(self, claim: Claim) -> None:
        """The API server says that there is no such claim; watches may not have reported that yet."""
        known = self.claims.get(claim.key)
        if known is not None and known.uid == claim.uid:
            self._set_claim(claim.key, None)

    def _has_devices(self, key: ObjectKey) -> bool:
        claim = self.claims.get(key)
        return claim is not None and claim.allocation is not None

    def _claim_changed(self, key: ObjectKey, claim: Claim | None) -> None:
        known = self.claims.get(key)
        if claim is not None and known is not None and known.uid == claim.uid and _older(claim, known):
            return  # from before our own write
        self._set_claim(key, claim)

    def _set_claim(self, key: ObjectKey, claim: Claim | None) -> None:
        known = self.claims.pop(key, None)
        if known is not None and claim is None:
            self._gone[known.uid] = None
            if len(self._gone) > MOST_GONE:
                del self._gone[next(iter(self._gone))]
        changed: set[PoolID] = set()
        if known is not None:
            self._not_made(known)
        if known is not None and (claim is None or claim.uid != known.uid):
            self._by_uid.pop(known.uid, None)
            changed |= self.usage.set(known.uid, None)
        if claim is not None:
            self._gone.pop(claim.uid, None)
            self.claims[key] = self._by_uid[claim.uid] = claim
            changed |= self.usage.set(claim.uid, claim.allocation)
            changed |= self._count_pending(claim.uid, claim.allocation)
            if (owner := owner_of_made(claim.document)) is not None:
                self._made.setdefault(owner, {})[key] = claim
                changed |= self._count_pending(made_uid(owner[1]), claim.allocation)
        if self.holds:
            changed |= self.holds.claim_changed(key)
        self._used(changed)
        self.tables.changed(keys=True)

    def _not_made(self, claim: Claim) -> None:
        owner = owner_of_made(claim.document)
        if owner is not None and claim.key in (of_pod := self._made.get(owner, {})):
            del of_pod[claim.key]
            if not of_pod:
                del self._made[owner]

    def _template_changed(self, key: ObjectKey, document: Document | None) -> None:
        if document is None:
            self.templates.pop(key, None)
        else:
            self.templates[key] = document
        self.tables.changed(keys=True)

    def _class_changed(self, name: str, document: Document | None) -> None:
        if document is None:
            self.classes.remove(name)
        else:
            self.classes.set(DeviceClass(document))
        self.tables.changed(keys=True, namespace=EVERY_NAMESPACE)

    def _slice_changed(self, name: str, document: Document | None) -> None:
        new = None if document is None else Slice(document)
        old = self._slices.pop(name, None)
        for each in (old, new):
            if each is not None:
                self._of_node_or_shared(each).pop(name, None)
        if old is not None:
            left = self._of_pool[old.pool] = [each for each in self._of_pool[old.pool] if each.name != name]
            if not left:
                del self._of_pool[old.pool]
        if new is not None:
            new.taint(self._rules.values())
            self._slices[name] = new
            self._of_node_or_shared(new)[name] = new
            self._of_pool.setdefault(new.pool, []).append(new)
        self._offer_changed(each for each in (old, new) if each is not None)

    def _of_node_or_shared(self, slice: Slice) -> dict[str, Slice]:
        name = slice.choice.node_name
        return self._of_node.setdefault(name, {}) if name else self._shared

    def _rule_changed(self, name: str, document: Document | None) -> None:
        if document is None:
            self._rules.pop(name, None)
        else:
            self._rules[name] = document
        rules = list(self._rules.values())
        self._offer_changed([each for each in self._slices.values() if each.taint(rules)])

    # -- rows

    def pools(self, row: int) -> RowPools:
        """The pools that the node of a row can use."""
        node = self.tables.nodes[row]
        assert node is not None
        found = self._pools.get(row)
        if found is None or found.node is not node:
            self._forget(row)
            slices = [*self._of_node.get(node.metadata.name, {}).values(), *self._shared.values()]
            try:
                found = RowPools(node, gather_pools(node, slices, self._of_pool, self._views))
            except PoolError as error:
                found = RowPools(node, [], str(error))
            self._pools[row] = found
            for pool in found.pools:
                self._rows.setdefault(pool.id, set()).add(row)
        return found

    def _forget(self, row: int) -> None:
        before = self._pools.pop(row, None)
        if before is not None:
            for pool in before.pools:
                self._rows[pool.id].discard(row)

    def _offer_changed(self, slices: Iterable[Slice]) -> None:
        """Slices came, went or changed: the pools of their nodes are gathered again."""
        rows: set[int] = set()
        for each in slices:
            self._views.pop(each.pool, None)
            rows |= self._rows.get(each.pool, set())
            name = each.choice.node_name
            if not name:
                rows.update(self.tables.row_of.values())
            elif name in self.tables.row_of:
                rows.add(self.tables.row_of[name])
        for row in rows:
            self._forget(row)
        self.tables.changed(rows=rows)

    # -- devices that stand-ins hold

    def held_by(self, pod: PodOnNode) -> None:
        """A stand-in came to a node, or changed there."""
        assert isinstance(pod.pod, StandIn)
        allocations = recorded_devices(pod.pod.metadata.annotations) or self.holds.given.get(pod.key, {})
        self._used(self.holds.hold(pod.key, pod.pod, allocations))

    def not_held_by(self, key: ObjectKey) -> None:
        self._used(self.holds.drop(key))

    def used_by(self, pod: Pod, uid: str) -> None:
        """A pod uses what the stand-in with this UID holds."""
        self._used(self.holds.use(pod.metadata.key, uid, claim_keys(pod)))

    def not_used_by(self, key: ObjectKey) -> None:
        self._used(self.holds.leave(key))

    def _used(self, pools: Iterable[PoolID]) -> None:
        """Devices were taken or given back."""
        rows: set[int] = set()
        for id in pools:
            rows |= self._rows.get(id, set())
            for pool in self._views.get(id, {}).values():
                if pool is not None:
                    pool.version += 1
        for row in rows:
            self._pools[row].version += 1
        if rows:
            self.tables.changed(rows=rows)

    # -- claims of pods

    def made_for(self, pod: Pod) -> Claim | None:
        """The claim that an earlier attempt made for the extended resources of a pod."""
        of_pod = self._made.get((pod.metadata.name, pod.metadata.uid), {})
        return next((claim for claim in of_pod.values() if claim.namespace == pod.metadata.namespace), None)

    def choose(self, uid: str, allocation: Document) -> None:
        """Devices were chosen for a claim; until `settle` they are in use."""
        self.pending[uid] = allocation
        claim = self._by_uid.get(uid)
        changed = self._count_pending(uid, None if claim is None else claim.allocation)
        if claim is not None and self.holds:
            changed |= self.holds.claim_changed(claim.key)
        self._used(changed)
        self.tables.changed(keys=True)

    def settle(self, uid: str) -> None:
        """What was chosen for a claim has been written, or has been given up."""
        if self.pending.pop(uid, None) is not None:
            changed, claim = self._count_pending(uid, None), self._by_uid.get(uid)
            if claim is not None and self.holds:
                changed |= self.holds.claim_changed(claim.key)
            self._used(changed)
            self.tables.changed(keys=True)

    def _count_pending(self, uid: str, written: Document | None) -> set[PoolID]:
        """Counts what was chosen for a claim, unless its status says so already."""
        chosen = self.pending.get(uid)
        same = chosen is not None and written is not None and chosen.get("devices") == written.get("devices")
        return self.usage.set(f"pending/{uid}", None if same else chosen)


def _older(claim: Claim, than: Claim) -> bool:
    version, known = claim.resource_version, than.resource_version
    return version.isdigit() and known.isdigit() and int(version) < int(known)


def catalogue_of(tables: Tables) -> DeviceCatalogue:
    found: DeviceCatalogue | None = tables.shared.get("devices")
    if found is None:
        found = tables.shared["devices"] = DeviceCatalogue(tables)
    return found
