"""Results of extension points: a code, the reasons in words, and the plugin that gave them."""

from __future__ import annotations

from enum import Enum

import msgspec
from msgspec.structs import replace


class Code(Enum):
    """What a result means for the pod."""

    SUCCESS = "Success"
    ERROR = "Error"  # something failed; the pod is retried with back-off
    UNSCHEDULABLE = "Unschedulable"  # does not fit now; evicting pods from the node may help
    UNRESOLVABLE = "UnschedulableAndUnresolvable"  # does not fit, and evictions do not help


class Status(msgspec.Struct, frozen=True):
    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def ok(self) -> bool:
        return self.code is Code.SUCCESS

    @property
    def message(self) -> str:
        return ", ".join(self.reasons)

    def by(self, plugin: str) -> Status:
        return replace(self, plugin=plugin)


SUCCESS = Status(Code.SUCCESS)


def unschedulable(*reasons: str) -> Status:
    return Status(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    return Status(Code.UNRESOLVABLE, reasons)


def error(*reasons: str) -> Status:
    return Status(Code.ERROR, reasons)
