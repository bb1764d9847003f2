"""Every recorded answer of Open Cluster Management's scheduler, asked again of ours.

Where we decide otherwise on purpose, the case is checked against that rule, and the rules applied are printed.
`WHARF_PLACEMENT_CASES` names other files (separated by `:`), in the same format.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from wharfinger.api.times import parse_time
from wharfinger.systems.placement.kinds.placement import PLACEMENT
from wharfinger.systems.placement.rules.pipeline import decide

CASES = Path(__file__).parent / "cases" / "ocm-placement-1.3.1.jsonl.gz"

NAME_TOO_LONG = "a Placement name of more than 63 characters is refused on create"
LAST_ADD_ON_WINS = "of a repeated AddOn configuration the last counts"
EXPIRED_FOR_CEL = "an expired score is absent for CEL too"


def files() -> list[Path]:
    named = os.environ.get("WHARF_PLACEMENT_CASES", "")
    return [Path(name) for name in named.split(":") if name] or [CASES]


def cases(path: Path) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        for number, line in enumerate(lines):
            case = json.loads(line)
            yield number, case["question"], case["answer"]


def answer_of(question: dict[str, Any]) -> dict[str, Any]:
    fleet, _, result = decide(
        question["placement"],
        question["clusters"],
        question["scores"],
        question["decisions"],
        parse_time(question["now"]),
    )
    names = fleet.names
    return {
        "filtered": {stage: sorted(names[row] for row in rows) for stage, rows in result.filtered.items()},
        "scores": {
            part.prioritizer.name: {
                names[row]: int(score)
                for row, score, scored in zip(result.rows, part.scores, part.scored, strict=True)
                if scored
            }
            for part in result.parts
        },
        "weights": {part.prioritizer.name: part.prioritizer.weight for part in result.parts},
        "totals": {names[row]: total for row, total in result.total_of().items()},
        "selected": [names[row] for row in result.selected],
        "status": result.code.value,
        "message": result.message,
    }


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> set[str]:
    different = {key for key in ours if key != "message" and ours[key] != theirs[key]}
    if ours["message"] not in (theirs.get("messages") or [theirs["message"]]):
        different.add("message")
    return different


def add_on_weights(question: dict[str, Any]) -> list[tuple[str, int]]:
    policy = question["placement"]["spec"].get("prioritizerPolicy") or {}
    found = []
    for configuration in policy.get("configurations") or []:
        add_on = (configuration.get("scoreCoordinate") or {}).get("addOn")
        if add_on:
            found.append((f"AddOn/{add_on['resourceName']}/{add_on['scoreName']}", configuration.get("weight", 1)))
    return found


def explained_by_last_add_on(question: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Same filters and scores; weights and totals as upstream would have with the last configuration alone."""
    weights = add_on_weights(question)
    if len({name for name, _ in weights}) == len(weights):
        return False
    expected = {**theirs["weights"], **dict(weights)}
    expected = {name: weight for name, weight in expected.items() if weight}
    totals = {
        cluster: sum(weight * theirs["scores"][name].get(cluster, 0) for name, weight in expected.items())
        for cluster in theirs["totals"]
    }
    order = sorted(totals, key=lambda cluster: (-totals[cluster], cluster))
    number = question["placement"]["spec"].get("numberOfClusters", len(order))
    return (
        ours["filtered"] == theirs["filtered"]
        and ours["weights"] == expected
        and ours["totals"] == totals
        and ours["selected"] == order[:number]
    )


def explained_by_expiry_in_cel(question: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Only clusters whose expired score an expression reads may differ."""
    spec = json.dumps(question["placement"]["spec"].get("predicates"))
    resources = set(re.findall(r'scores\(\\"([^"\\]+)\\"\)', spec))
    now = parse_time(question["now"])
    expired = {
        score["metadata"]["namespace"]
        for score in question["scores"]
        if score["metadata"]["name"] in resources
        and score["status"].get("validUntil")
        and parse_time(score["status"]["validUntil"]) < now
    }
    changed = {
        cluster
        for stage in theirs["filtered"]
        for cluster in set(theirs["filtered"][stage]) ^ set(ours["filtered"].get(stage, []))
    }
    return bool(changed) and changed <= expired


def rule_for(question: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    name = question["placement"]["metadata"]["name"]
    if len(name) > 63:
        assert PLACEMENT.validate is not None
        faults = PLACEMENT.validate(question["placement"], None)
        return NAME_TOO_LONG if any(fault.path == "metadata.name" for fault in faults) else ""
    if explained_by_last_add_on(question, ours, theirs):
        return LAST_ADD_ON_WINS
    if explained_by_expiry_in_cel(question, ours, theirs):
        return EXPIRED_FOR_CEL
    return ""


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_all_recorded_answers_agree(path: Path) -> None:
    rules: Counter[str] = Counter()
    wrong = []
    total = 0
    for number, question, theirs in cases(path):
        total += 1
        ours = answer_of(question)
        different = differences(ours, theirs)
        if different:
            rule = rule_for(question, ours, theirs)
            rules[rule] += 1
            if not rule:
                wrong.append((number, sorted(different)))
    for rule, count in rules.items():
        print(f"{path.name}: {count} cases by our rule: {rule or 'none'}")
    assert total > 0
    assert not wrong, f"{len(wrong)} of {total} cases differ without a rule: {wrong[:20]}"
