"""Feasibility across clusters: what the hub asks the agents of clusters, what they answer, and how that is written down.

The question (how many replicas of this pod template fit?) and the answer are annotations of an AddOnPlacementScore in the
namespace of the cluster. So an agent needs to read nothing but its own namespace, and the scores and their validity are
in the same object.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from wharfinger.api.registry import Document
from wharfinger.systems.placement.kinds.views import AddOnPlacementScore

PREFIX = "wharfinger.dev/"
QUESTION = PREFIX + "capacity-question"  # written by the hub
ANSWER = PREFIX + "capacity-answer"  # written by the agent of the cluster
FITS = PREFIX + "Fits"  # the condition that tells the answer in words

NOW, AFTER_SCALE_UP, SHARE = "fitsNow", "fitsAfterScaleUp", "share"  # names of scores
_HIGHEST = 100  # a score cannot tell a larger number
_NAME = "capacity."


class CapacityQuestion(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """How many of `replicas` pods of this template fit?"""

    namespace: str
    replicas: int
    template: dict[str, Any]


class CapacityAnswer(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    question: str  # the digest of the question, so that an answer to an earlier one is not mistaken for it
    replicas: int
    now: int
    after_scale_up: int  # including those that fit now
    reason: str = ""  # why not more fit now
    reason_after_scale_up: str = ""  # why not more fit after that

    def count(self, which: str) -> int:
        return self.now if which == "Now" else self.after_scale_up

    @property
    def verdict(self) -> str:
        """The reason of the condition: whether all replicas fit now, after scale-up, or never."""
        if self.now >= self.replicas:
            return "FitsNow"
        return "FitsAfterScaleUp" if self.after_scale_up >= self.replicas else "DoesNotFit"

    @property
    def text(self) -> str:
        """`3 of 12 fit (Insufficient cpu), 10 after scale-up (limit of the node groups)`"""
        words = f"{self.now} of {self.replicas} fit"
        if self.reason:
            words += f" ({self.reason})"
        if self.after_scale_up > self.now:
            words += f", {self.after_scale_up} after scale-up"
            if self.reason_after_scale_up:
                words += f" ({self.reason_after_scale_up})"
        return words

    @property
    def scores(self) -> dict[str, int]:
        return {
            NOW: min(self.now, _HIGHEST),
            AFTER_SCALE_UP: min(self.after_scale_up, _HIGHEST),
            SHARE: 100 * min(self.now, self.replicas) // self.replicas,
        }


def question_name(namespace: str, template: str) -> str:
    """The name of the AddOnPlacementScore for a PodTemplate. Namespaces contain no dots, so names are unique."""
    return f"{_NAME}{namespace}.{template}"


def template_key(name: str) -> tuple[str, str] | None:
    """The namespace and name of the PodTemplate that an AddOnPlacementScore of this name is for."""
    namespace, dot, template = name.removeprefix(_NAME).partition(".")
    return (namespace, template) if name.startswith(_NAME) and dot else None


def digest(question: str) -> str:
    return hashlib.sha256(question.encode()).hexdigest()[:16]


def write_question(question: CapacityQuestion) -> str:
    return msgspec.json.encode(question, order="sorted").decode()


def read_question(annotations: Mapping[str, str]) -> CapacityQuestion | None:
    try:
        return msgspec.json.decode(annotations.get(QUESTION, ""), type=CapacityQuestion)
    except msgspec.MsgspecError:
        return None


def read_answer(score: AddOnPlacementScore) -> CapacityAnswer | None:
    """The answer to the present question; None if there is none yet."""
    annotations = score.metadata.annotations
    if ANSWER not in annotations or QUESTION not in annotations:
        return None
    try:
        answer = msgspec.json.decode(annotations[ANSWER], type=CapacityAnswer)
    except msgspec.MsgspecError:
        return None
    return answer if answer.question == digest(annotations[QUESTION]) else None


def write_answer(answer: CapacityAnswer) -> str:
    return msgspec.json.encode(answer, order="sorted").decode()


_CONTAINER = ("name", "image", "resources", "ports", "restartPolicy")


def schedulable_part(template: Document) -> dict[str, Any]:
    """What decides where pods of a template fit. Commands, environments and the like do not leave the hub."""
    spec = dict(template.get("spec") or {})
    for field in ("containers", "initContainers"):
        if spec.get(field):
            spec[field] = [{key: each[key] for key in _CONTAINER if key in each} for each in spec[field]]
    metadata = template.get("metadata") or {}
    kept = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
    return {"metadata": kept, "spec": spec}
