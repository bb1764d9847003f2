"""Which nodes have the devices that a pod needs, and how good the alternatives are that they offer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from wharfinger.api.keys import ObjectKey
from wharfinger.api.views import Node
from wharfinger.devices.allocator import (
    AllocationError,
    ChosenDevices,
    ClaimToAllocate,
    DeviceRanking,
    InvalidPools,
    Search,
    SearchTooLong,
)
from wharfinger.devices.claims import Claim, claim_spec, results_of
from wharfinger.devices.diagnosis import DeviceDiagnosis, RequestDiagnosis
from wharfinger.devices.extended import IN_MEMORY_NAME, ExtendedRequests
from wharfinger.devices.grouping import enough_groups
from wharfinger.devices.results import Result, allocation
from wharfinger.framework.columns import Floats, Ints, Rows
from wharfinger.framework.device_scoring import WeightedScorers, ranking
from wharfinger.framework.plugin import Prepared, Scope, normalize_by_max
from wharfinger.framework.shapes import Shape
from wharfinger.framework.simulation import Simulation
from wharfinger.framework.status import Code, Status, error, unresolvable
from wharfinger.plugins.dynamic_resources.catalogue import DeviceCatalogue, RowPools
from wharfinger.plugins.dynamic_resources.likeness import RowLikeness
from wharfinger.plugins.dynamic_resources.needs import DeviceNeeds

CANNOT_ALLOCATE = unresolvable("cannot allocate all claims")
NOT_AVAILABLE = unresolvable("resourceclaim not available on the node")
STALE_CLAIM = unresolvable("cannot schedule extended resource claim")
NO_RESOURCE = unresolvable("cannot fit resource")
MOST_ALTERNATIVES = 8
MOST_ALIKE = 4096  # verdicts that are kept for rows like others


class RowOutcome(NamedTuple):
    """What the search found for a row."""

    status: Status | None = None
    score: int = 0
    found: Sequence[ChosenDevices] | None = None  # for each claim to allocate; None if there is nothing to allocate
    extended: ExtendedRequests | None = None
    unavailable: tuple[int, ...] = ()  # numbers of the allocated claims that the node cannot use
    too_long: bool = False  # the search was given up


class _RowVerdict(NamedTuple):
    """The cached verdict for a row, while its pools stay the same."""

    pools: RowPools
    version: int
    code: int
    score: int
    unavailable: tuple[int, ...]


class DevicePlan(NamedTuple):
    """What a pod takes on a node: the allocations by claim, and the requests of the claim for extended resources."""

    allocations: Mapping[ObjectKey, Result]
    extended: ExtendedRequests | None


class DevicesPrepared(Prepared):
    """A row is searched again only when its node, its slices or the use of their devices changed."""

    scope = Scope.ROW
    filters = normalizes = True

    def __init__(
        self,
        catalogue: DeviceCatalogue,
        shape: Shape,
        needs: DeviceNeeds,
        most_steps: int | None = None,
        scorers: WeightedScorers = (),
    ) -> None:
        super().__init__()
        self._scorers = scorers
        self.needs = needs
        # Only alternatives make one node better than another.
        self.scores = any(entry.alternatives for claim in needs.claims for entry in claim.spec.requests)
        self._catalogue = catalogue
        self._tables = catalogue.tables
        self._shape = shape
        self._most_steps = most_steps
        self._known: dict[int, _RowVerdict] = {}
        self._likeness = RowLikeness(needs.claims, catalogue.classes, catalogue.usage)
        self._alike: dict[Hashable, tuple[int, int]] = {}  # code and score of rows that are alike
        self._errors: set[int] = set()  # rows whose search failed
        self._too_long = False  # whether a search was given up since no row failed
        self._positions: tuple[int, int] | None = None
        self._opened: dict[int, dict[str, _RowVerdict]] = {}  # by row and UID of the stand-in that the pod would use

    # -- filtering

    @property
    def fails(self) -> bool:  # type: ignore[override]
        """Whether a search fails now: as upstream, that fails the whole attempt."""
        tables = self._tables
        rows: Sequence[int] = tables.rows.tolist()
        if self._positions is not None:
            nodes, pods = (
                tables.node_log.since(self._positions[0]),
                tables.pod_log.since(self._positions[1]),
            )
            if nodes is not None and pods is not None:
                rows = [row for row in {*nodes, *pods} if tables.nodes[row] is not None]
        self._positions = (tables.node_log.position, tables.pod_log.position)
        for row in rows:
            self._verdict(row)
        self._errors = {row for row in self._errors if tables.nodes[row] is not None}
        self._too_long = self._too_long and bool(self._errors)
        return bool(self._errors)

    def filter(self, rows: Rows) -> Ints:
        return np.fromiter((self._verdict(row).code for row in rows.tolist()), dtype=np.int64, count=len(rows))

    def filter_row(self, row: int, simulation: Simulation | None = None) -> int:
        if simulation is not None and simulation.opened and self._catalogue.holds.devices(simulation.opened):
            return self._opened_verdict(row, simulation.opened).code
        return self._verdict(row).code

    def score(self, rows: Rows) -> Ints:
        return np.fromiter((self.score_row(row) for row in rows.tolist()), dtype=np.int64, count=len(rows))

    def score_row(self, row: int) -> int:
        found = self._verdict(row)
        if found.code and row in self._opened:  # feasible only with what a stand-in holds
            return max((each.score for each in self._opened[row].values() if not each.code), default=0)
        return found.score

    def normalize(self, scores: Ints, rows: Rows) -> Ints:
        return normalize_by_max(scores)

    def unavailable(self, row: int) -> tuple[int, ...]:
        """The allocated claims that the node of a row cannot use, if that is why it is refused."""
        return self._verdict(row).unavailable

    def _verdict(self, row: int) -> _RowVerdict:
        pools = self._catalogue.pools(row)
        known = self._known.get(row)
        if known is not None and known.pools is pools and known.version == pools.version:
            return known
        alike = self._likeness.key(pools.pools) if not pools.error and not self.needs.extended else None
        shared = self._alike.get(alike) if alike is not None else None
        if shared is not None:
            known = self._known[row] = _RowVerdict(pools, pools.version, *shared, ())
            if self.status(shared[0]).code is Code.ERROR:
                self._errors.add(row)
            else:
                self._errors.discard(row)
            return known
        outcome = self.search(row)
        code = 0 if outcome.status is None else self.refuse(outcome.status)
        known = self._known[row] = _RowVerdict(pools, pools.version, code, outcome.score, outcome.unavailable)
        if outcome.status is not None and outcome.status.code is Code.ERROR:
            self._errors.add(row)
            self._catalogue.failing.add(self.needs.key)
        else:
            self._errors.discard(row)
        if alike is not None and (row not in self._errors or outcome.too_long):
            if len(self._alike) >= MOST_ALIKE:
                self._alike.clear()
            self._alike[alike] = (code, outcome.score)
        return known

    def _opened_verdict(self, row: int, opened: str) -> _RowVerdict:
        pools, of_row = self._catalogue.pools(row), self._opened.setdefault(row, {})
        known = of_row.get(opened)
        if known is None or known.pools is not pools or known.version != pools.version:
            outcome = self.search(row, opened)
            code = 0 if outcome.status is None else self.refuse(outcome.status)
            known = of_row[opened] = _RowVerdict(pools, pools.version, code, outcome.score, outcome.unavailable)
        return known

    def plan(
        self, row: int, share_id: Callable[[], str], claims: Sequence[Claim] | None = None, opened: str = ""
    ) -> DevicePlan | Status | None:
        """What the pod takes on a row; None if there is nothing to allocate. `claims` are those of another pod with the same
        needs, `opened` is the UID of the stand-in that it uses."""
        outcome = self._search(row, opened, ranking(self._scorers, row) if self._scorers else None)
        if outcome.status is not None:
            return outcome.status
        if outcome.found is None:
            return None
        node = self._tables.name(row)
        claims = self.needs.claims if claims is None else claims
        keys = [each.key for each in claims if each.allocation is None]
        if outcome.extended is not None:
            keys.append((self._shape.namespace, IN_MEMORY_NAME))
        made = [allocation(each, node, share_id) for each in outcome.found]
        return DevicePlan(dict(zip(keys, made, strict=True)), outcome.extended)

    # -- the search

    def search(self, row: int, opened: str = "") -> RowOutcome:
        """The first devices on a row that serve the pod, or why there are none. As upstream's Filter. `opened` is the UID of
        the stand-in that the pod would use."""
        return self._search(row, opened, None)

    def _search(self, row: int, opened: str, ranked: DeviceRanking | None) -> RowOutcome:
        needs, node = self.needs, self._tables.nodes[row]
        assert node is not None
        extended: ExtendedRequests | None = None
        if needs.extended:
            if needs.stale is not None and needs.stale.spec.requests:
                return RowOutcome(STALE_CLAIM)
            by_devices = [name for name in needs.extended if not self._allocatable(name, row)]
            if not needs.claims and (not by_devices or needs.made_before):
                return RowOutcome()
        if needs.extended and not needs.made_before:
            extended = ExtendedRequests(self._shape.pod, by_devices, self._catalogue.classes)
        wanted = self._wanted(extended)
        unavailable = tuple(
            index
            for index, claim in enumerate(needs.claims)
            if claim.allocation is not None and (index in needs.unusable or not claim.available_on(node))
        )
        found: list[ChosenDevices] | None = None
        if wanted:
            pools = self._catalogue.pools(row)
            if pools.error:
                return RowOutcome(_failed(pools.error))
            try:
                found = self._held(node, pools, wanted, opened, ranked) if opened else None
                if found is None:
                    found = self._free(node, pools, wanted, ranked)
            except AllocationError as failed:
                too_long = isinstance(failed, SearchTooLong)
                self._too_long = self._too_long or too_long
                return RowOutcome(_failed(str(failed)), too_long=too_long)
            except InvalidPools as invalid:
                return RowOutcome(unresolvable(str(invalid)))
            if found is None:
                return RowOutcome(CANNOT_ALLOCATE)
        if unavailable:
            return RowOutcome(NOT_AVAILABLE, unavailable=unavailable)
        return RowOutcome(None, self._score(found) if found is not None else 0, found, extended)

    def _free(
        self, node: Node, pools: RowPools, wanted: list[ClaimToAllocate], ranked: DeviceRanking | None
    ) -> list[ChosenDevices] | None:
        """Devices that nobody has."""
        usage, classes, most = self._catalogue.usage, self._catalogue.classes.by_name, self._most_steps
        made = wanted[-1].spec if self.needs.extended else None
        if made is not None and made.constraints:  # resources that are served in groups
            looking = DeviceDiagnosis(node, pools.pools, usage, classes)
            if not enough_groups(made, looking.usable):
                return None
        if most is not None and self._too_long:
            most = max(most // 100, 1)  # one long search is enough: the attempt fails anyway
        return Search(node, pools.pools, wanted, usage, classes, most_steps=most, ranked=ranked).run()

    def _held(
        self,
        node: Node,
        pools: RowPools,
        wanted: list[ClaimToAllocate],
        opened: str,
        ranked: DeviceRanking | None,
    ) -> list[ChosenDevices] | None:
        """Devices that a stand-in holds: no others if these are enough, else these first."""
        holds, classes = self._catalogue.holds, self._catalogue.classes.by_name
        held, usage = holds.devices(opened), holds.opened(opened)
        if not held:
            return None
        for only in (True, False):
            search = Search(
                node,
                pools.pools,
                wanted,
                usage,
                classes,
                most_steps=self._most_steps,
                ranked=ranked,
                first=held,
                only_first=only,
            )
            try:
                found = search.run()
            except InvalidPools:
                if only:
                    continue  # a pool that has nothing to do with it
                raise
            if found is not None:
                return found
        return None

    def _wanted(self, extended: ExtendedRequests | None) -> list[ClaimToAllocate]:
        """The claims to allocate."""
        wanted = [ClaimToAllocate(str(each), each.spec) for each in self.needs.claims if each.allocation is None]
        if extended is not None:
            spec = claim_spec({"devices": extended.devices})
            wanted.append(ClaimToAllocate(f"{self._shape.namespace}/{IN_MEMORY_NAME}", spec))
        return wanted

    # -- explanations

    def diagnose(self, row: int) -> list[RequestDiagnosis]:
        """Why the devices of a row do not satisfy the claims, request by request."""
        node, pools = self._tables.nodes[row], self._catalogue.pools(row)
        assert node is not None
        extended: ExtendedRequests | None = None
        if self.needs.extended:
            by_devices = [name for name in self.needs.extended if not self._allocatable(name, row)]
            extended = ExtendedRequests(self._shape.pod, by_devices, self._catalogue.classes)
        catalogue = self._catalogue
        looking = DeviceDiagnosis(node, pools.pools, catalogue.usage, catalogue.classes.by_name, catalogue.holds.holder)
        return looking.of(self._wanted(extended))

    def detail(self, row: int) -> str:
        """For a refused row: what rules out the devices that the pod needs, and where its other claims have theirs."""
        known = self._verdict(row)
        if not known.code:
            return ""
        if known.unavailable:
            claims = ", ".join(str(self.needs.claims[index]) for index in known.unavailable)
            return f"allocated elsewhere or not ready: {claims}"
        return "; ".join(map(str, self.diagnose(row)))

    def missing(self, rows: Rows) -> Floats:
        found = (sum(each.missing for each in self.diagnose(row)) for row in rows.tolist())
        return np.fromiter(found, dtype=np.float64, count=len(rows))

    def _allocatable(self, resource: str, row: int) -> int:
        tables = self._tables
        return tables.allocatable[tables.resource(resource)].cells[row]

    def _score(self, found: Sequence[ChosenDevices]) -> int:
        """Early alternatives are better: eight for the first of a request, seven for the second, and so on."""
        total = 0
        for claim in self.needs.claims:
            if claim.allocation is not None:
                total += _allocated_score(claim)
        for chosen in found:
            used = {each.request.qualified for each in chosen.devices}
            for entry in chosen.spec.requests:
                for index, request in enumerate(entry.alternatives):
                    if request.qualified in used:
                        total += MOST_ALTERNATIVES - index
        return total


def _allocated_score(claim: Claim) -> int:
    used = {each.get("request") for each in results_of(claim.allocation)}
    return sum(
        MOST_ALTERNATIVES - index
        for entry in claim.spec.requests
        for index, request in enumerate(entry.alternatives)
        if request.qualified in used
    )


def _failed(why: str) -> Status:
    return error(f'running "DynamicResources" filter plugin: {why}')
