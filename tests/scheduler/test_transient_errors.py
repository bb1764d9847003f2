"""Binds that fail for a moment, and nominations of pods that may not be scheduled yet: as kube-scheduler 1.37 treats them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.scheduler.test_live import Stage, node, pod

from wharfinger.api.errors import ApiError, Conflict, InternalError, ServiceUnavailable
from wharfinger.scenario.faults import BindFaults


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.world.close()


def failing(monkeypatch: pytest.MonkeyPatch, *errors: ApiError) -> list[ApiError]:
    """Makes the next binds fail with these errors; returns those that are left."""
    left = list(errors)

    async def inject(self: BindFaults) -> None:
        if left:
            raise left.pop(0)

    monkeypatch.setattr(BindFaults, "inject", inject)
    monkeypatch.setattr(BindFaults, "armed", True)
    return left


@pytest.mark.parametrize("error", [ServiceUnavailable("no"), InternalError("no")])
def test_a_bind_is_tried_again_at_once_after_a_transient_error(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, error: ApiError
) -> None:
    left = failing(monkeypatch, error, error, error)
    stage.apply(node("n1"), pod("a"))
    assert not left
    assert stage.nodes_of("a") == ["n1"]
    assert not stage.events("FailedScheduling")


@pytest.mark.parametrize("errors", [[ServiceUnavailable("no")] * 4, [Conflict("no")]])
def test_it_fails_after_four_attempts_or_another_error(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, errors: list[Any]
) -> None:
    left = failing(monkeypatch, *errors)
    stage.apply(node("n1"), pod("a"))
    assert not left
    assert stage.nodes_of("a") == ["n1"]
    assert any("binding rejected" in each for each in stage.events("FailedScheduling"))


def test_a_gated_pod_keeps_the_room_for_which_it_is_nominated(stage: Stage) -> None:
    gated = pod("gated", "3", schedulingGates=[{"name": "wait"}])
    gated["status"] = {"nominatedNodeName": "n1"}
    stage.apply(node("n1", "4"), gated)
    stage.apply(pod("other", "2"))
    assert stage.nodes_of("other") == [""]
    stage.delete("gated")
    assert stage.nodes_of("other") == ["n1"]
