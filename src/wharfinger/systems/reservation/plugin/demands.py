"""What a pod requires of reservations through its annotations: reservation affinity and exact match. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from wharfinger.api.selectors import BadSelector, NodeSelectorTerm, Requirement, exact_labels, matches, requirement
from wharfinger.api.taints import NO_SCHEDULE, UNSCHEDULABLE, any_tolerates, has_untolerated_taint
from wharfinger.api.views import ObjectMeta, view
from wharfinger.api.views.nodes import Taint
from wharfinger.api.views.pods import Toleration
from wharfinger.systems.reservation.kinds.views import Reservation, ReservationAffinity
from wharfinger.systems.reservation.rules.reservations import AFFINITY, EXACT_MATCH

UNSCHEDULABLE_TAINT = Taint(key=UNSCHEDULABLE, effect=NO_SCHEDULE)


class BadDemand(ValueError):
    """An annotation of the pod is malformed."""


class Term(msgspec.Struct, frozen=True):
    """One term of a required affinity: label requirements, and field requirements on the reservation's name."""

    labels: tuple[Requirement, ...]
    names: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        return matches(self.labels, labels) and matches(self.names, {"metadata.name": name})


class Demands(msgspec.Struct, frozen=True):
    """`required`: the pod must use a reservation. `terms` is None if the affinity has no required terms."""

    required: bool = False
    name: str = ""
    selector: tuple[Requirement, ...] = ()
    terms: tuple[Term, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    exact: tuple[str, ...] = ()

    @property
    def reads_nodes(self) -> bool:
        return not self.name and bool(self.selector or self.terms is not None)

    def accepts(self, reservation: Reservation, node_labels: Mapping[str, str]) -> bool:
        """Whether the pod may use a reservation that it owns. Does not check sizes."""
        if self.name:
            # A reservation selected by name is accepted even if tainted or unschedulable; only owners and sizes are
            # checked.
            return reservation.metadata.name == self.name
        if (reservation.spec.unschedulable or reservation.terminating) and not any_tolerates(
            self.tolerations, UNSCHEDULABLE_TAINT
        ):
            return False
        if reservation.spec.taints and has_untolerated_taint(self.tolerations, reservation.spec.taints):
            return False
        if not self.selector and self.terms is None:
            return True
        labels = {**node_labels, **reservation.metadata.labels}
        if not matches(self.selector, labels):
            return False
        return self.terms is None or any(term.matches(labels, reservation.metadata.name) for term in self.terms)


NOTHING = Demands()


def demands_of(metadata: ObjectMeta) -> Demands:
    """The demands in the pod's annotations. Raises BadDemand."""
    affinity, exact_match = metadata.annotations.get(AFFINITY), metadata.annotations.get(EXACT_MATCH)
    if affinity is None and not exact_match:
        return NOTHING
    names = _exact_names(exact_match) if exact_match else ()
    if affinity is None:
        return Demands(exact=names)
    try:
        written = msgspec.json.decode(affinity) if affinity.strip() else None
        found = ReservationAffinity() if written is None else view(written, ReservationAffinity)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise BadDemand(f"annotation {AFFINITY}: {error}") from None
    try:
        terms = None
        if found.required is not None:
            terms = tuple(_term(each) for each in found.required.reservation_selector_terms if not _is_empty(each))
        return Demands(True, found.name, exact_labels(found.reservation_selector), terms, found.tolerations, names)
    except BadSelector as error:
        raise BadDemand(f"annotation {AFFINITY}: {error.path}: {error}") from None


def _is_empty(term: NodeSelectorTerm) -> bool:
    """An empty term matches nothing, as in a node selector."""
    return not term.match_expressions and not term.match_fields


def _term(term: NodeSelectorTerm) -> Term:
    names = []
    for index, expression in enumerate(term.match_fields):
        path = f"matchFields[{index}]"
        if expression.key != "metadata.name":
            raise BadSelector("not a valid field selector key", f"{path}.key")
        if expression.operator not in ("In", "NotIn"):
            raise BadSelector(f'"{expression.operator}" is not a valid field selector operator', f"{path}.operator")
        names.append(requirement(expression, node=True, path=path))
    labels = [
        requirement(expression, node=True, path=f"matchExpressions[{index}]")
        for index, expression in enumerate(term.match_expressions)
    ]
    return Term(tuple(labels), tuple(names))


def _exact_names(text: str) -> tuple[str, ...]:
    try:
        names = (msgspec.json.decode(text) or {}).get("resourceNames") or []
        return tuple(msgspec.convert(names, list[str]))
    except (msgspec.DecodeError, msgspec.ValidationError, AttributeError) as error:
        raise BadDemand(f"annotation {EXACT_MATCH}: {error}") from None
