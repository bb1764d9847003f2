"""The block of this system in the configuration document."""

from __future__ import annotations

from wharfinger.api.configuration import Block, Count, Positive


class ReservationSettings(Block, frozen=True):
    enable_preemption: bool = (
        False  # reservations may preempt, and a preemptor gets a reservation for what its victims free
    )
    charge_quota: bool = False
    honour_ignored_label: bool = False
    gc_seconds: Count = 24 * 3600  # how long Succeeded and Expired ones are kept; 0 keeps them for ever
    gc_interval_seconds: Positive = 60
