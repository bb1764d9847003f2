"""Annotations and labels that control the behaviour of simulated pods and nodes. Invalid values are ignored."""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger.api.numbers import parse_uint64
from wharfinger.api.registry import Document
from wharfinger.api.times import BadTime, parse_duration

PREFIX = "wharfinger.dev/"

# On nodes
SIMULATED = PREFIX + "simulated"  # label or annotation, `true` or `false`: whether the node is simulated
SAMPLE = PREFIX + "sample"  # label: created by `wharf nodes --count`; the value is the name prefix
DOWN = PREFIX + "down"  # annotation: `true` makes the node fail

# On nodes and pods
USAGE = PREFIX + "usage"  # annotation: what metrics report, such as `cpu=250m,memory=64Mi`, `cpu=150%` or `main/cpu=1`

# On pods
START_AFTER = PREFIX + "start-after"  # time from bound to running; `never` keeps the pod pending
READY_AFTER = PREFIX + "ready-after"  # time from running to ready; `never` keeps it unready
RUN_FOR = PREFIX + "run-for"  # how long containers run; default: forever
EXIT_CODE = PREFIX + "exit-code"  # of the containers; a list has one for each attempt, the last one repeats
SHUTDOWN_AFTER = PREFIX + "shutdown-after"  # how long containers take to stop after SIGTERM

NEVER = float("inf")


def seconds(annotations: Mapping[str, str], name: str, default: float) -> float:
    """A duration such as `30s` or `1h`; `never` is infinite."""
    text = annotations.get(name)
    if text is None:
        return default
    if text == "never":
        return NEVER
    try:
        return max(0.0, parse_duration(text))
    except BadTime:
        return default


def exit_code(annotations: Mapping[str, str], attempt: int) -> int:
    """The exit code of the attempt, counted from 0."""
    given = (parse_uint64(part.strip()) for part in annotations.get(EXIT_CODE, "").split(","))
    codes = [code for code in given if code is not None]
    return codes[min(attempt, len(codes) - 1)] if codes else 0


def is_true(text: str | None) -> bool:
    return text is not None and text.lower() == "true"


def simulation_mark(labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool | None:
    """Whether a node says that it is simulated; None if it says nothing. The label has precedence."""
    mark = labels.get(SIMULATED, annotations.get(SIMULATED))
    return None if mark is None else is_true(mark)


def node_is_simulated(node: Document) -> bool:
    """Whether a node, as stored, is simulated: marked by `wharf up`, `wharf nodes` or a user. All others have a kubelet."""
    metadata = node.get("metadata") or {}
    return bool(simulation_mark(metadata.get("labels") or {}, metadata.get("annotations") or {}))
