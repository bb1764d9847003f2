"""A ChangePlan as a headline and sections, for text and for Markdown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from wharfinger.api.fields import show
from wharfinger.api.wording import counted, listed

if TYPE_CHECKING:
    from wharfinger.simulate.plan_workloads import WorkloadChange
    from wharfinger.simulate.planning import ChangePlan, PlannedChange, Recreation, ScaleInChange

Mark = Literal["+", "-", "~", "!"]  # new, gone, changed, and bad news
_PREEMPTION = re.compile(r",? no new claims to deallocate,|,? preemption: ")
_NODES, _NAMES = 4, 5  # that are named in a cell


class PlanRow(msgspec.Struct, frozen=True):
    mark: Mark
    cells: tuple[str, ...]


class PlanSection(msgspec.Struct, frozen=True):
    title: str
    header: tuple[str, ...]
    rows: Sequence[PlanRow]


class PlanHeadline(msgspec.Struct, frozen=True):
    """What happens in a line: the bad news, and the rest."""

    bad: str
    rest: str


def headline(plan: ChangePlan) -> PlanHeadline:
    total: Counter[str] = Counter()
    for each in plan.workloads:
        for name in ("pending", "preempted", "moved", "started", "ended"):
            total[name] += getattr(each, name)
        total["failed"] += each.phases.get("Failed", 0)
    news = plan.bad_news()
    drains = len({each.node for each in plan.blocked})
    anew = Counter(each.after.problem for each in plan.recreations if each.after.why)
    refused = news["refused"] - anew["Refused"]
    bad = [
        f"{counted(drains, 'drain')} blocked" if drains else "",
        f"{refused} refused" if refused else "",
        f"{counted(total['pending'], 'pod')} left pending" if total["pending"] else "",
        f"{counted(total['preempted'], 'pod')} preempted" if total["preempted"] else "",
        f"{counted(total['failed'], 'pod')} failed" if total["failed"] else "",
        f"{counted(anew.total(), 'workload')} whose pods could not be created anew" if anew else "",
        f"{counted(len(plan.failed), 'expectation')} failed" if plan.failed else "",
    ]
    others = sum(1 for each in plan.changes if each.kind != "Pod" and "wanted" not in (each.after or each.before or {}))
    costs = sum(1 for each in plan.changes if _is_repriced(each))
    again = sum(1 for each in plan.recreations if not each.after.why)
    rest = [
        _pods(total["moved"], "moves", "move"),
        _pods(total["started"], "starts", "start"),
        _pods(total["ended"], "ends", "end"),
        f"{counted(costs, 'pod')} with another deletion cost" if costs else "",
        f"{counted(others, 'other object')} {'changes' if others == 1 else 'change'}" if others else "",
        f"{counted(again, 'workload')} can get new pods again" if again else "",
    ]
    scaled = sum(1 for each in plan.workloads if each.wanted[0] != each.wanted[1])
    if not any(bad) and not any(rest):
        rest = [f"{counted(scaled, 'workload')} {'wants' if scaled == 1 else 'want'} another number of pods"]
    return PlanHeadline(", ".join(filter(None, bad)), ", ".join(filter(None, rest)))


def _pods(number: int, one: str, many: str) -> str:
    return f"{counted(number, 'pod')} {one if number == 1 else many}" if number else ""


def sections(plan: ChangePlan, *, everything: bool) -> Iterator[PlanSection]:
    """Those that have rows. With `everything`, also one with a row for each pod."""
    found = (
        PlanSection("Blocked", ("drain of", "budget", "pods that stay"), list(_blocked(plan))),
        PlanSection("Refused", ("request", "why"), list(_refused(plan))),
        PlanSection("Workloads", ("workload", "ready", "what happens"), [_workload(each) for each in plan.workloads]),
        PlanSection("When pods are created anew", ("workload", "new pods"), [_anew(each) for each in plan.recreations]),
        PlanSection("Scale-in order", ("workload", "what changes"), list(_scale_in(plan))),
        PlanSection("Other objects", ("object", "before → after"), list(_others(plan))),
        PlanSection("Pods", ("pod", "change", "before → after"), list(_each_pod(plan)) if everything else ()),
    )
    return (section for section in found if section.rows)


def _blocked(plan: ChangePlan) -> Iterator[PlanRow]:
    by_budget: dict[tuple[str, str], list[str]] = {}
    for each in plan.blocked:
        budgets = ", ".join(f"PodDisruptionBudget {each.namespace}/{name}" for name in each.budgets)
        by_budget.setdefault((each.node, budgets or each.message), []).append(f"{each.namespace}/{each.pod}")
    for (node, why), pods in by_budget.items():
        yield PlanRow("!", (node, why, listed(sorted(pods), _NAMES)))


def _refused(plan: ChangePlan) -> Iterator[PlanRow]:
    blocked = {(each.namespace, each.pod, each.message) for each in plan.blocked}
    for each in plan.refused:
        if each.kind != "Pod" or (each.namespace, each.name, each.message) not in blocked:
            yield PlanRow("!", (_name(each.kind, each.namespace, each.name), each.message))


def _workload(each: WorkloadChange) -> PlanRow:
    mark: Mark = "!" if each.bad else "~" if each.existed and each.exists else "+" if each.exists else "-"
    return PlanRow(mark, (_name(each.kind, each.namespace, each.name), _ready(each), "; ".join(_happens(each))))


def _ready(each: WorkloadChange) -> str:
    before, after = (
        f"{ready}/{wanted}" if wanted is not None else str(ready)
        for ready, wanted in zip(each.ready, each.wanted, strict=True)
    )
    return before if before == after else f"{before} → {after}"


def _happens(each: WorkloadChange) -> Iterator[str]:
    """The bad news first."""

    def pods(number: int, one: str, many: str) -> str:
        return one if each.kind == "Pod" else _pods(number, one, many)

    if each.pending:
        yield f"{pods(each.pending, 'waits', 'wait')}: {'; '.join(map(_brief, each.reasons))}"
    if each.refusal:
        yield f"more pods are refused: {each.refusal}"
    if each.preempted:
        yield pods(each.preempted, "is preempted", "are preempted")
    for phase, number in sorted(each.phases.items()):
        yield pods(number, f"becomes {phase}", f"become {phase}")
    if each.moved:
        origin = f" from {_counted_names(each.left)}" if len(each.left) == each.moved else ""
        goal = f" to {_counted_names(each.reached)}" if len(each.reached) == each.moved else ""
        yield f"{pods(each.moved, 'moves', 'move')}{origin}{goal}"
    if each.started:
        on = f" on {_counted_names(each.reached)}" if len(each.reached) == each.started else ""
        yield f"{pods(each.started, 'starts', 'start')}{on}"
    if each.ended:
        yield pods(each.ended, "ends", "end")
    if not each.exists and each.kind != "Pod" and not each.ended:
        yield "is deleted"


def _brief(reason: str) -> str:
    """The message of a scheduler without what it says about preemption, which did not help either."""
    return _PREEMPTION.split(reason, maxsplit=1)[0].removesuffix(".")


def _counted_names(names: Iterable[str]) -> str:
    return listed((f"{name} ({n})" if n > 1 else name for name, n in Counter(names).most_common()), _NODES)


def _anew(each: Recreation) -> PlanRow:
    name = _name(each.kind, each.namespace, each.name)
    if each.after.why:
        what = "are refused" if each.after.problem == "Refused" else "find no node"
        return PlanRow("!", (name, f"{what}: {each.after.why}"))
    what = "are refused" if each.before.problem == "Refused" else "find no node"
    return PlanRow("+", (name, f"are possible again; now they {what}: {each.before.why}"))


def _scale_in(plan: ChangePlan) -> Iterator[PlanRow]:
    ordered = {(each.kind, each.namespace, each.name): each for each in plan.scale_in}
    repriced: dict[tuple[str, str, str], list[PlannedChange]] = {}
    for change in plan.changes:
        if _is_repriced(change):
            key = change.workload or (change.kind, change.namespace, change.name)
            repriced.setdefault(key, []).append(change)
    for key in sorted({*ordered, *repriced}, key=lambda key: (key[1], key[2], key[0])):
        texts = []
        if order := ordered.get(key):
            texts.append(_order(order))
        if changed := repriced.get(key):
            costs = Counter((_cost(each.before), _cost(each.after)) for each in changed)
            texts.append(
                "costs "
                + ", ".join(
                    f"{a} → {b}{f' ({n} pods)' if n > 1 else ''}" for (a, b), n in sorted(costs.items(), key=_by_cost)
                )
            )
        yield PlanRow("~", (_name(*key), "; ".join(texts)))


def _order(each: ScaleInChange) -> str:
    return f"first to go: {listed(each.after, 3)} (before: {listed(each.before, 3)})"


def _by_cost(counted: tuple[tuple[str, str], int]) -> tuple[tuple[int, str], ...]:
    """Sorts pairs of costs as numbers; the names of pods, by which they are found, are random."""
    return tuple((len(cost), cost) for cost in counted[0])


def _is_repriced(change: PlannedChange) -> bool:
    """Whether only the deletion cost of a pod changes."""
    return (
        change.kind == "Pod"
        and change.before is not None
        and change.after is not None
        and _cost(change.before) != _cost(change.after)
    )


def _cost(facts: Mapping[str, Any] | None) -> str:
    return str((facts or {}).get("deletionCost", "none"))


def _others(plan: ChangePlan) -> Iterator[PlanRow]:
    """Objects of the systems, and everything else that is neither a pod nor a workload."""
    for change in plan.changes:
        facts = change.after or change.before or {}
        if change.kind != "Pod" and "wanted" not in facts:
            mark: Mark = "+" if change.before is None else "-" if change.after is None else "~"
            yield PlanRow(mark, (_name(change.kind, change.namespace, change.name), difference(change)))


def _each_pod(plan: ChangePlan) -> Iterator[PlanRow]:
    for change in plan.changes:
        if change.kind == "Pod":
            mark: Mark = "+" if change.before is None else "-" if change.after is None else "~"
            yield PlanRow(mark, (f"{change.namespace}/{change.name}", change.what, difference(change)))


def difference(change: PlannedChange) -> str:
    """What differs, fact by fact; everything if the object is new or gone."""
    before, after = change.before, change.after
    if before is None or after is None:
        return ", ".join(
            f"{key} {_value(value)}" for key, value in (before or after or {}).items() if _value(value) != "-"
        )
    return "; ".join(_differences("", before, after))


def _differences(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys((*before, *after)):
        old, new = before.get(key), after.get(key)
        name = f"{path} {key}" if path else str(key)
        if old == new:
            continue
        if isinstance(old, Mapping | None) and isinstance(new, Mapping | None):
            yield from _differences(name.removesuffix("s"), old or {}, new or {})
        else:
            yield f"{name} {_value(old)} → {_value(new)}"


def _value(value: Any) -> str:
    if value is None or value == [] or value == {}:
        return "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_value(each)}" for key, each in value.items())
    if isinstance(value, list):
        return listed(map(str, value), _NAMES)
    return value if isinstance(value, str) else show(value)


def _name(kind: str, namespace: str, name: str) -> str:
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
