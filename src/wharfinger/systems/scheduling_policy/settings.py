"""The block of this system in the configuration document."""

from __future__ import annotations

from typing import Literal

from wharfinger.api.configuration import Block


class Exempt(Block, frozen=True):
    users: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()


class SchedulingPolicySettings(Block, frozen=True):
    mode: Literal["auto", "enforce", "warn", "audit"] = "auto"
    merge_strategy: Literal["deep", "first", "simple"] = "deep"
    identity: Literal["ServiceAccount", "ServiceAccountOrUser"] = "ServiceAccount"
    enforce_templates: bool = False
    default_scheduler_counts_as_unset: bool = True
    namespace_mode_label: bool = False  # whether a namespace label may lower the mode
    scheduler_identities: tuple[str, ...] = ()  # further users and groups that count as schedulers
    exempt: Exempt = Exempt()
