"""The annotations that tell a simulated pod or node how to behave; values that make no sense count as absent."""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger.api.times import BadTime, parse_duration

PREFIX = "wharfinger.dev/"

# On nodes
SIMULATED = PREFIX + "simulated"  # label or annotation, `true` or `false`: whether this node is ours to simulate
SAMPLE = PREFIX + "sample"  # label: made by `wharf nodes --count`, with the prefix of its name
DOWN = PREFIX + "down"  # annotation `true`: the node has failed

# On pods
START_AFTER = PREFIX + "start-after"  # from bound to running; `never` keeps the pod waiting
READY_AFTER = PREFIX + "ready-after"  # from running to ready; `never` keeps it from being ready
RUN_FOR = PREFIX + "run-for"  # how long containers run; absent: for ever
EXIT_CODE = PREFIX + "exit-code"  # how they end; a list gives one for each attempt, the last for all further ones
SHUTDOWN_AFTER = PREFIX + "shutdown-after"  # how long containers take to stop when told to

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
    codes = [int(part) for part in annotations.get(EXIT_CODE, "").split(",") if part.strip().isdigit()]
    return codes[min(attempt, len(codes) - 1)] if codes else 0


def is_true(text: str | None) -> bool:
    return text is not None and text.lower() == "true"
