"""The `reservation` block of the configuration document."""

from __future__ import annotations

from wharfinger.api.configuration import Block, Count, Positive


class ReservationSettings(Block, frozen=True):
    enable_preemption: bool = False  # reservations may preempt; room freed by victims is reserved for the preemptor
    charge_quota: bool = False
    honour_ignored_label: bool = False
    gc_seconds: Count = 24 * 3600  # how long ended reservations, sets and migrations are kept; 0: forever
    gc_interval_seconds: Positive = 60
    repack_policies: bool = False  # whether RepackPolicies are carried out
