"""Fixtures that run each test with both back ends: `run` passes a new store, in memory and on disk, to a scenario."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.store.support import Clock, registry

from wharfinger.api.kinds.builtin import NAMESPACES
from wharfinger.store import Store

Scenario = Callable[[Store], Awaitable[Any]]


@pytest.fixture(params=["memory", "sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make_store(backend: str, tmp_path: Path, clock: Clock) -> Callable[..., Store]:
    def make(**options: Any) -> Store:
        options = {"now": clock.now, "source": random.Random(1), **options}
        if backend == "memory":
            return Store(registry(), **options)
        return Store.open(tmp_path / "data.db", registry(), **options)

    return make


@pytest.fixture
def run(make_store: Callable[..., Store]) -> Callable[..., Any]:
    """Runs a scenario with a store that contains the namespace `default`."""

    def runner(scenario: Scenario, **options: Any) -> Any:
        async def body() -> Any:
            store = make_store(**options)
            try:
                await store.create(NAMESPACES, {"metadata": {"name": "default"}})
                return await asyncio.wait_for(scenario(store), 60)
            finally:
                await store.close()

        return asyncio.run(body())

    return runner
