"""The writes before a bind: each is answered with the object that the server returns."""

from __future__ import annotations

from wharfinger.framework.prebinding import Preparation, Write


def test_every_write_is_taken_and_answered() -> None:
    preparation = Preparation()
    preparation.writes = tuple(Write("PersistentVolumeClaim", "default", name, {}) for name in ("a", "b"))
    steps = preparation.steps()
    taken = [next(steps).name]
    taken.append(steps.send({"metadata": {"name": "a"}}).name)
    assert taken == ["a", "b"]
    assert next(steps, None) is None
