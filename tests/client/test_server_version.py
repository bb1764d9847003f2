"""Which version of Kubernetes is followed on a server that starts, fails, or does not tell."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from wharfinger.api.errors import ApiError, Forbidden, NotFound, ServiceUnavailable
from wharfinger.api.kubernetes_version import REFERENCE, KubernetesVersion
from wharfinger.client import server_version
from wharfinger.client.server_version import REFUSALS, version_to_follow

OLD = KubernetesVersion.V1_36


class Answering:
    """A server that gives these answers in turn."""

    def __init__(self, *answers: ApiError | KubernetesVersion) -> None:
        self._answers: Iterator[ApiError | KubernetesVersion] = iter(answers)

    async def kubernetes_version(self) -> KubernetesVersion:
        answer = next(self._answers)
        if isinstance(answer, ApiError):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("answers", "followed"),
    [
        ((OLD,), OLD),
        ((ServiceUnavailable("no"), Forbidden("not yet"), OLD), OLD),
        ((ServiceUnavailable("no"),) * (REFUSALS + 2) + (OLD,), OLD),
        ((Forbidden("never"),) * REFUSALS, REFERENCE),
        ((NotFound("never"),) * REFUSALS, REFERENCE),
    ],
)
def test_the_version_to_follow(answers: Any, followed: KubernetesVersion, monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(_: float) -> None:
        return None

    monkeypatch.setattr(server_version.asyncio, "sleep", at_once)
    server: Any = Answering(*answers)
    assert asyncio.run(version_to_follow(server)) is followed
