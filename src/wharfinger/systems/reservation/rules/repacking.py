"""What a RepackPolicy does next: when a run begins, which of its moves begin, and when it is over. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from wharfinger.api.cron import latest_missed, parse_schedule
from wharfinger.api.registry import Document
from wharfinger.api.times import parse_duration, parse_time
from wharfinger.api.wording import counted
from wharfinger.repack.plans import RepackGoal, RepackMove

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
POLICY_LABEL = "wharfinger.dev/repack-policy"
SHORTEST_TTL = 60.0  # seconds that a move may take even if the window ends before


@dataclass(frozen=True, slots=True)
class RepackTimes:
    """The window that has begun, if one has and was not used yet, and when the next one begins."""

    due: float | None  # when the window began
    until: float = 0.0  # when it ends
    missed: float | None = None  # when the last window began that has ended unused
    next: float | None = None


def times_of(policy: Document, now: float) -> RepackTimes:
    spec, status = policy["spec"], policy.get("status") or {}
    schedule = parse_schedule(spec["schedule"], spec.get("timeZone"))
    length = parse_duration(spec["window"])
    after = parse_time(status.get("lastScheduleTime") or policy["metadata"]["creationTimestamp"])
    moment, _ = latest_missed(schedule, after, now)
    following = schedule.next(now)
    if moment is None:
        return RepackTimes(None, next=following)
    if now < moment + length:
        return RepackTimes(moment, moment + length, next=following)
    return RepackTimes(None, missed=moment, next=following)


def goal_of(spec: Document) -> RepackGoal:
    goal = spec["goal"]
    return RepackGoal(
        free_nodes=goal.get("freeNodes"),
        nodes=goal.get("nodes") or "",
        room=bool(goal.get("room")),
        restore_order=bool(goal.get("restoreOrder")),
        even_zones=bool(goal.get("evenZones")),
        defragment=goal.get("defragment") or "",
    )


def move_of(document: Document) -> RepackMove:
    return RepackMove(document["pod"], document["from"], document["to"], document.get("why") or "")


def move_document(move: RepackMove) -> Document:
    return {"pod": move.pod, "from": move.source, "to": move.target, "why": move.why, "state": PENDING}


def job_name(policy: str, run: Document, move: Document) -> str:
    """The same move of the same run has the same name, so that a restarted controller takes up its job."""
    text = f"{policy} {run['started']} {move['pod']} {move['from']} {move['to']}"
    return f"repack-{policy[:40].rstrip('-.')}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def to_begin(run: Document, spec: Document, now: float) -> list[Document]:
    """The moves that may begin now."""
    moves: Sequence[Document] = run.get("moves") or ()
    if spec.get("suspend") or now >= parse_time(run["until"]) or any(move["state"] == FAILED for move in moves):
        return []
    free = spec["atOnce"] - sum(move["state"] == RUNNING for move in moves)
    return [move for move in moves if move["state"] == PENDING][: max(free, 0)]


def outcome_of_run(run: Document, spec: Document, now: float) -> tuple[str, str] | None:
    """The outcome and a message if nothing is under way and nothing may begin; None while the run goes on."""
    moves: Sequence[Document] = run.get("moves") or ()
    if any(move["state"] == RUNNING for move in moves):
        return None
    done = sum(move["state"] == SUCCEEDED for move in moves)
    failed = next((move for move in moves if move["state"] == FAILED), None)
    if failed is not None:
        return "Stopped", f"{failed['message']}; {done} of {len(moves)} moves were made"
    if done == len(moves):
        return "Completed", f"{counted(done, 'move')} {'was' if done == 1 else 'were'} made"
    if now >= parse_time(run["until"]):
        return "WindowClosed", f"{done} of {len(moves)} moves were made before the window ended"
    return None


def half_freed(run: Document) -> list[str]:
    """The nodes that were to be freed and are not empty."""
    staying = {move["from"] for move in run.get("moves") or () if move["state"] != SUCCEEDED}
    return [name for name in run.get("freed") or () if name in staying]
