"""Devices that stand-ins hold: in use for everybody but the pods that use the stand-in, and never counted twice."""

from __future__ import annotations

from typing import Any

from wharfinger.api.quantity import NANO
from wharfinger.api.views import ObjectMeta
from wharfinger.devices.claims import Claim
from wharfinger.devices.slices import DeviceID
from wharfinger.devices.usage import DeviceUsage
from wharfinger.framework.stand_ins import StandIn
from wharfinger.plugins.dynamic_resources.held_devices import HeldDevices

Document = dict[str, Any]
NIC, GPU = DeviceID("d", "p", "nic"), DeviceID("d", "p", "gpu")
HOLDER, USER, CLAIM = ("default", "reservation/r"), ("default", "user"), ("default", "c")


def allocation(*results: Document) -> Document:
    return {"devices": {"results": list(results)}}


def share(amount: str) -> Document:
    return {"request": "r", **NIC._asdict(), "shareID": "any", "consumedCapacity": {"bandwidth": amount}}


def whole() -> Document:
    return {"request": "r", **GPU._asdict()}


class Fixture:
    def __init__(self) -> None:
        self.usage = DeviceUsage()
        self.claims = {CLAIM: Claim({"metadata": {"name": "c", "namespace": "default", "uid": "c"}})}
        self.holds = HeldDevices(self.usage, self.claims.get)

    def hold(self, *results: Document) -> None:
        stand_in = StandIn(ObjectMeta(uid="r"), kind="Reservation", object_name="for-web")
        self.holds.hold(HOLDER, stand_in, {"gpu": allocation(*results)})

    def allocate(self, *results: Document) -> None:
        """The claim of the user gets devices."""
        self.usage.set("c", allocation(*results) if results else None)
        self.holds.claim_changed(CLAIM)

    def bandwidth(self, usage: DeviceUsage | None = None) -> int:
        return (usage or self.usage).consumed(NIC).get("bandwidth", 0) // NANO


def test_a_held_device_is_in_use_for_others_only() -> None:
    fixture = Fixture()
    fixture.hold(whole())
    assert fixture.usage.exclusive(GPU)
    assert not fixture.holds.opened("r").exclusive(GPU)
    assert fixture.holds.opened("another").exclusive(GPU)
    assert fixture.holds.devices("r") == {GPU}
    assert fixture.holds.holder(GPU) == "Reservation for-web"
    fixture.holds.drop(HOLDER)
    assert not fixture.usage.in_use(GPU)


def test_a_device_that_a_user_has_is_in_use_for_other_users_too() -> None:
    fixture = Fixture()
    fixture.hold(whole())
    fixture.holds.use(USER, "r", [CLAIM])
    fixture.allocate(whole())
    assert fixture.holds.opened("r").exclusive(GPU)
    assert fixture.holds.holder(GPU) == ""
    fixture.holds.drop(HOLDER)
    assert fixture.usage.exclusive(GPU)


def test_of_shared_capacity_only_what_users_leave_is_held() -> None:
    fixture = Fixture()
    fixture.hold(share("4"))
    assert fixture.bandwidth() == 4
    assert fixture.bandwidth(fixture.holds.opened("r")) == 0
    fixture.holds.use(USER, "r", [CLAIM])
    fixture.allocate(share("3"))
    assert fixture.bandwidth() == 4
    assert fixture.bandwidth(fixture.holds.opened("r")) == 3
    fixture.allocate(share("6"))
    assert fixture.bandwidth() == 6
    fixture.allocate()
    assert fixture.bandwidth() == 4
    fixture.allocate(share("3"))
    fixture.holds.leave(USER)  # it goes on with devices of its own
    assert fixture.bandwidth() == 7


def test_a_pod_that_uses_nothing_changes_nothing() -> None:
    fixture = Fixture()
    fixture.hold(share("4"))
    assert fixture.holds.leave(USER) == set()
    assert fixture.holds.claim_changed(CLAIM) == set()
