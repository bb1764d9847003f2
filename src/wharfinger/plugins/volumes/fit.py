"""On which nodes the claims of a pod are satisfied, and how well: what VolumeBinding prepares for a shape."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wharfinger.framework.columns import Bools, Ints, Rows
from wharfinger.framework.plugin import Prepared, Scope
from wharfinger.framework.status import Status, error, unresolvable
from wharfinger.plugins.volumes.catalogue import Bound, VolumeCatalogue
from wharfinger.plugins.volumes.provisioning import Provisioning
from wharfinger.plugins.volumes.rules import capacity_bytes, on_labels, on_rows
from wharfinger.plugins.volumes.scoring import CapacityScore, Provision
from wharfinger.plugins.volumes.supply import ClaimKind, Supply

PLUGIN = "VolumeBinding"

NODE_CONFLICT, BIND_CONFLICT, NO_SPACE, NO_VOLUME = 1, 2, 4, 8
REASONS = {
    NODE_CONFLICT: "node(s) didn't match PersistentVolume's node affinity",
    BIND_CONFLICT: "node(s) didn't find available persistent volumes to bind",
    NO_SPACE: "node(s) did not have enough free storage",
    NO_VOLUME: "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
}
"""In the order in which a refusal lists them."""


class MeantVolume(NamedTuple):
    """A volume with a claimRef to a claim that is not bound yet."""

    affinity: int  # number of its node affinity
    name: str
    capacity: int  # bytes; here because the score depends on it


class WantedVolume(NamedTuple):
    """An unbound claim that waits for its consumer."""

    kind: ClaimKind
    meant: tuple[MeantVolume, ...]
    selected: str | None  # the node that it is being provisioned for
    class_name: str  # of its spec, whatever an annotation says


class VolumeNeeds(NamedTuple):
    """What the volumes of a pod require of a node; pods with equal needs share a shape."""

    refusal: Status | None = None
    affinities: tuple[
        Bound, ...
    ] = ()  # where the bound volumes can be used; in the order of the claims if that matters
    missing: bool = False  # whether a claim is bound to a volume that does not exist; it comes after `affinities`
    wanted: tuple[WantedVolume, ...] = ()


Reach = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
"""For each claim in order, what it can take on a row: node affinities of volumes meant for it, and groups of its supply."""


class VolumeFit(Prepared):
    """Of node scope if all claims are bound; claims to be bound also depend on the available volumes and capacity.

    Scores only if a `score` is given.
    """

    filters = True
    follows_pods = True

    def __init__(self, catalogue: VolumeCatalogue, needs: VolumeNeeds, score: CapacityScore | None) -> None:
        super().__init__()
        self.needs = needs
        self.scores = score is not None
        self._score = score
        self.scope = Scope.CLUSTER if needs.wanted else Scope.NODE
        self._catalogue = catalogue
        self._tables = catalogue.tables
        # Smaller claims choose first, so that each takes the smallest volume that fits.
        matching = [index for index, each in enumerate(needs.wanted) if each.selected is None]
        self._matching = sorted(matching, key=lambda index: needs.wanted[index].kind.size)
        self._selected = [index for index, each in enumerate(needs.wanted) if each.selected is not None]
        self._supplies: dict[int, Supply] = {
            index: catalogue.supply(needs.wanted[index].kind)
            for index in self._matching
            if not needs.wanted[index].meant or self._named_again(index)
        }
        classes = [supply.kind.class_name for supply in self._supplies.values()]
        self._competing = len(set(classes)) < len(classes)
        self._provisioning = {
            index: Provisioning(catalogue, each.kind.class_name, each.kind.size)
            for index, each in enumerate(needs.wanted)
        }
        self._faults = {
            each.fault: self.refuse(error(f'running "{PLUGIN}" filter plugin: {each.fault}'))
            for each in needs.affinities
            if each.fault
        }
        self.fails = bool(self._faults)
        self._by_flags = np.zeros(16, dtype=np.int64)  # [flags] code
        for flags in range(1, 16):
            reasons = (reason for flag, reason in REASONS.items() if flags & flag)
            self._by_flags[flags] = self.refuse(unresolvable(*reasons))

    @property
    def version(self) -> int:
        return self._catalogue.provision_version + sum(each.version for each in self._supplies.values())

    def close(self) -> None:
        for supply in self._supplies.values():
            self._catalogue.release(supply)

    def filter(self, rows: Rows) -> Ints:
        flags = np.zeros(len(rows), dtype=np.int64)
        failed = np.zeros(len(rows), dtype=np.int64)  # codes of errors
        # As upstream, the first claim that does not suit a node decides.
        left = np.ones(len(rows), dtype=np.bool_)
        for bound in self.needs.affinities:
            suitable = on_rows(self._tables, self._catalogue.terms(bound.affinity), rows)
            if bound.plugin:
                moved = self._catalogue.migrated(bound.plugin, rows)
                if bound.fault:
                    failed[left & moved] = self._faults[bound.fault]
                    left &= ~moved
                else:
                    suitable = np.where(
                        moved, on_rows(self._tables, self._catalogue.terms(bound.translated), rows), suitable
                    )
            flags[left & ~suitable] = NODE_CONFLICT
            left &= suitable
        if self.needs.missing:
            flags[left] = NO_VOLUME
        if self.needs.wanted:
            flags |= self._unbound(rows)
        return np.where(failed != 0, failed, self._by_flags[flags])

    def _unbound(self, rows: Rows) -> Ints:
        """Flags for rows where a claim neither finds a volume nor can be provisioned."""
        flags = np.zeros(len(rows), dtype=np.int64)
        failed = np.zeros(len(rows), dtype=np.bool_)
        for index in self._selected:
            failed |= rows != self._tables.row_of.get(self.needs.wanted[index].selected or "", -1)
        flags[failed] = BIND_CONFLICT
        unmatched = self._unmatched(rows)
        for index in (*self._selected, *self._matching):
            left = unmatched[index] & ~failed if index in unmatched else ~failed
            if not left.any():
                continue
            possible = self._provisioning[index].possible(rows)
            refused = left & ~possible
            flags[refused] = BIND_CONFLICT
            short = left & possible & ~self._provisioning[index].sufficient(rows)
            flags[short] = NO_SPACE
            failed |= refused | short
        return flags

    def _unmatched(self, rows: Rows) -> dict[int, Bools]:
        """For each claim that may take an existing volume: the rows where it finds none."""
        if self._competing:
            return self._unmatched_by_row(rows)
        found = {}
        for index in self._matching:
            meant = self.needs.wanted[index].meant
            if meant:
                found[index] = ~on_rows(self._tables, self._catalogue.terms(meant[0].affinity), rows)
            else:
                found[index] = ~self._supplies[index].reachable(rows)
        return found

    def _named_again(self, index: int) -> bool:
        """Whether several volumes of the pod name the claim. As upstream, each takes a PersistentVolume of its own."""
        meant = self.needs.wanted[index].meant
        return sum(each.meant == meant for each in self.needs.wanted) > 1

    def _unmatched_by_row(self, rows: Rows) -> dict[int, Bools]:
        """The same when several claims of one class compete. Rows that reach the same volumes have the same result."""
        found = {index: np.zeros(len(rows), dtype=np.bool_) for index in self._matching}
        known: dict[Reach, list[int]] = {}
        for at, row in enumerate(rows.tolist()):
            reach = self._reach(row)
            missed = known.get(reach)
            if missed is None:
                chosen = self._choose(reach)
                missed = known[reach] = [index for index in self._matching if index not in chosen]
            for index in missed:
                found[index][at] = True
        return found

    def _reach(self, row: int) -> Reach:
        node = self._tables.nodes[row]
        assert node is not None
        found = []
        for index in self._matching:
            supply = self._supplies.get(index)
            groups = () if supply is None else supply.at(node.metadata.labels)
            meant = tuple(
                each.affinity
                for each in self.needs.wanted[index].meant
                if on_labels(self._catalogue.terms(each.affinity), node.metadata.labels)
            )
            found.append((meant, groups))
        return tuple(found)

    def _choose(self, reach: Reach) -> dict[int, str]:
        """The volume that each claim takes, in order."""
        taken: set[str] = set()
        chosen: dict[int, str] = {}
        for index, (usable, groups) in zip(self._matching, reach, strict=True):
            left = [each for each in self.needs.wanted[index].meant if each.name not in taken]
            name: str | None = None
            if left:
                # As upstream, a volume that is meant for the claim and not usable here leaves the claim without any.
                name = left[0].name if left[0].affinity in usable else None
            elif index in self._supplies:
                name = self._supplies[index].smallest(groups, taken)
            if name is not None:
                taken.add(name)
                chosen[index] = name
        return chosen

    def assign(self, row: int) -> tuple[int, dict[int, str]]:
        """Why the row is not feasible, as flags, or else the volumes that claims take; the other claims are provisioned."""
        flags = int(self._unbound(np.array([row]))[0])
        return flags, {} if flags else self._choose(self._reach(row))

    # -- scoring

    def score(self, rows: Rows) -> Ints:
        if not self.needs.wanted or self._score is None:
            return np.zeros(len(rows), dtype=np.int64)
        everywhere = np.ones(len(rows), dtype=np.bool_)
        unmatched = self._unmatched(rows)
        provisions = []
        for index in (*self._selected, *self._matching):
            provisioning = self._provisioning[index]
            where, capacity = unmatched.get(index, everywhere), provisioning.capacity(rows)
            provisions.append(Provision(self.needs.wanted[index].class_name, provisioning.bytes, where, capacity))
        scores = self._score.of_provisions(provisions, len(rows))
        matched = np.zeros(len(rows), dtype=np.bool_)
        for index in self._matching:
            matched |= ~unmatched[index]
        known: dict[Reach, int] = {}
        for at in np.flatnonzero(matched).tolist():
            reach = self._reach(int(rows[at]))
            found = known.get(reach)
            if found is None:
                found = known[reach] = self._score_of_volumes(self._choose(reach))
            scores[at] = found
        return scores

    def _score_of_volumes(self, chosen: dict[int, str]) -> int:
        by_class: dict[str, tuple[int, int]] = {}
        for index, name in chosen.items():
            volume = self._catalogue.volumes[name]
            asked, there = by_class.get(volume.spec.storage_class_name, (0, 0))
            asked += self._provisioning[index].bytes
            by_class[volume.spec.storage_class_name] = asked, there + capacity_bytes(volume)
        return self._score.of_volumes(by_class) if self._score is not None else 0


class NoClaims(Prepared):
    """A pod without claims: every node is equally good. As upstream, the score is still stated."""

    scores = bounded = True
    reserves = False

    def score(self, rows: Rows) -> Ints:
        return np.zeros(len(rows), dtype=np.int64)
