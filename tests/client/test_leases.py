"""Leader election: one leader at a time, despite clock jumps, lost responses and suspended processes."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime
from typing import Any

import pytest
from tests.client.scripted import MemoryClient, pod
from tests.client.virtual import run_virtual

from wharfinger.api.errors import ServiceUnavailable
from wharfinger.api.kinds.builtin import LEASES, PODS
from wharfinger.client.fence import FencedClient
from wharfinger.client.leases import Leader, NotLeading


class JumpyClock:
    """A wall clock that may jump; no decision may depend on it."""

    def __init__(self) -> None:
        self.offset = 1_700_000_000.0

    def now(self) -> float:
        return asyncio.get_running_loop().time() + self.offset


class Candidate:
    """A candidate that records its terms as (start, end) and can be suspended as by SIGSTOP."""

    def __init__(self, client: MemoryClient, name: str, clock: JumpyClock) -> None:
        self.loop = asyncio.get_running_loop()
        self.reigns: list[list[float]] = []
        self.leader = Leader(client, "lock", "ns", name, clock, steady=self.loop.time, rng=random.Random(name))
        self.task = asyncio.create_task(self.leader.run(self._lead))

    async def _lead(self) -> None:
        self.reigns.append([self.loop.time()])
        try:
            await asyncio.Event().wait()
        finally:
            self.reigns[-1].append(self.loop.time())

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def elect(body: Any) -> None:
    async def main() -> None:
        client, clock = MemoryClient(), JumpyClock()
        first = Candidate(client, "first", clock)
        await asyncio.sleep(0.1)
        second = Candidate(client, "second", clock)
        try:
            await body(client, clock, first, second)
        finally:
            await first.stop()
            await second.stop()

    run_virtual(main())


def lease(client: MemoryClient) -> dict[str, Any]:
    found: dict[str, Any] = client.objects["leases", "ns", "lock"]["spec"]
    return found


def test_the_second_waits_while_the_first_renews() -> None:
    async def body(client: MemoryClient, clock: JumpyClock, first: Candidate, second: Candidate) -> None:
        await asyncio.sleep(3600)
        assert len(first.reigns) == 1 and first.leader.leading
        assert second.reigns == [] and second.leader.holder == "first"
        assert lease(client)["holderIdentity"] == "first" and lease(client)["leaseTransitions"] == 0

    elect(body)


def test_a_stopped_leader_releases_the_lease() -> None:
    async def body(client: MemoryClient, clock: JumpyClock, first: Candidate, second: Candidate) -> None:
        await asyncio.sleep(60)
        await first.stop()
        assert lease(client)["holderIdentity"] == "" and lease(client)["leaseDurationSeconds"] == 1
        await asyncio.sleep(4.5)
        assert second.leader.leading
        assert lease(client)["leaseTransitions"] == 1

    elect(body)


@pytest.mark.parametrize("jump", [-86400.0, 86400.0], ids=["a day back", "a day ahead"])
def test_a_jump_of_the_wall_clock_changes_nothing(jump: float) -> None:
    async def body(client: MemoryClient, clock: JumpyClock, first: Candidate, second: Candidate) -> None:
        await asyncio.sleep(60)
        clock.offset += jump
        await asyncio.sleep(60)
        assert len(first.reigns) == 1 and first.leader.leading and second.reigns == []

    elect(body)


def test_a_disconnected_leader_stops_before_the_next_starts() -> None:
    async def body(client: MemoryClient, clock: JumpyClock, first: Candidate, second: Candidate) -> None:
        await asyncio.sleep(60)
        mine = first.leader._client
        first.leader._client = _Unreachable(mine)
        await asyncio.sleep(60)
        assert second.leader.leading
        assert first.reigns[0][1] <= second.reigns[0][0] - 2, "with time between for what is on the wire"
        first.leader._client = mine
        await second.stop()
        await asyncio.sleep(10)
        assert first.leader.leading and len(first.reigns) == 2

    elect(body)


class _Unreachable:
    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        async def refuse(*_: Any, **__: Any) -> Any:
            raise ServiceUnavailable("no route to host")

        return refuse


@pytest.mark.parametrize("seed", range(10))
def test_an_abandoned_lease_is_acquired_within_one_retry_period(seed: int) -> None:
    """A candidate sees the last renewal at most one retry period late, and tries at the moment the lease expires."""

    async def main() -> None:
        client, clock, rng = MemoryClient(), JumpyClock(), random.Random(seed)
        first = Candidate(client, "first", clock)
        await asyncio.sleep(rng.random())
        others = [Candidate(client, f"other {seed} {number}", clock) for number in range(3)]
        await asyncio.sleep(60 + 10 * rng.random())
        silent = _Unreachable(client)
        first.leader._client = silent  # no renewal succeeds any more
        renewed = micro(lease(client)["renewTime"])
        await asyncio.sleep(30)
        (new,) = [each for each in others if each.leader.leading]
        took_over = micro(lease(client)["acquireTime"]) - renewed
        assert 15 <= took_over <= 15 + 2 + 0.1
        assert abs(new.reigns[0][0] - (micro(lease(client)["acquireTime"]) - clock.offset)) < 0.1
        for each in (first, *others):
            await each.stop()

    run_virtual(main())


def test_a_candidate_keeps_its_interval_while_the_server_is_down() -> None:
    async def body(client: MemoryClient, clock: JumpyClock, first: Candidate, second: Candidate) -> None:
        await asyncio.sleep(60)
        client.fail = lambda verb, name: ServiceUnavailable("connection refused")
        await asyncio.sleep(20)  # the lease expires meanwhile
        client.calls.clear()
        await asyncio.sleep(60)
        assert 2 * 30 <= len(client.calls) <= 2 * 50  # two candidates, each every 1.2 to 2 seconds

    elect(body)


def micro(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_a_leader_suspended_past_its_lease_writes_nothing_when_it_resumes() -> None:
    """A suspended process misses its timers: when it resumes, its worker may run before the renewal."""

    async def main() -> None:
        client, clock = MemoryClient(), JumpyClock()
        loop = asyncio.get_running_loop()
        skew = 0.0
        leader = Leader(client, "lock", "ns", "me", clock, steady=lambda: loop.time() + skew)
        writer = FencedClient(client, leader.check)
        refused: list[str] = []

        async def lead() -> None:
            await writer.create(PODS, pod("before"), "default")
            await asyncio.sleep(1)  # the process is suspended here
            try:
                await writer.create(PODS, pod("after"), "default")
            except NotLeading as error:
                refused.append(str(error))
            await asyncio.Event().wait()

        task = asyncio.create_task(leader.run(lead))
        await asyncio.sleep(0.5)
        skew = 3600.0
        lease_of = client.objects["leases", "ns", "lock"]
        lease_of["spec"]["holderIdentity"] = "another"
        lease_of["metadata"]["resourceVersion"] = "taken"
        await asyncio.sleep(5)
        assert refused and "the lease ns/lock is not held by me" in refused[0]
        assert ("pods", "default", "before") in client.objects and ("pods", "default", "after") not in client.objects
        assert not leader.leading and leader.holder == "another"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert lease(client)["holderIdentity"] == "another"

    run_virtual(main())


def test_a_lost_response_to_a_renewal_does_not_lose_the_lease() -> None:
    async def body(client: MemoryClient, clock: JumpyClock, first: Candidate, second: Candidate) -> None:
        await asyncio.sleep(60)
        real = client.update

        async def applied_but_unanswered(*args: Any, **options: Any) -> Any:
            await real(*args, **options)
            client.update = real
            raise ServiceUnavailable("connection reset")

        client.update = applied_but_unanswered
        await asyncio.sleep(60)
        assert len(first.reigns) == 1 and first.leader.leading and second.reigns == []

    elect(body)


def test_a_deleted_lease_is_recreated() -> None:
    async def body(client: MemoryClient, clock: JumpyClock, first: Candidate, second: Candidate) -> None:
        await asyncio.sleep(60)
        del client.objects["leases", "ns", "lock"]
        await asyncio.sleep(10)
        leaders = [each for each in (first, second) if each.leader.leading]
        assert len(leaders) == 1

    elect(body)


@pytest.mark.parametrize("seed", range(20))
def test_there_are_never_two_leaders(seed: int) -> None:
    """Random faults on both candidates for ten minutes; at any moment at most one can make a fenced write."""

    async def main() -> None:
        client, clock, rng = MemoryClient(), JumpyClock(), random.Random(seed)
        client.delay = 0.05
        client.fail = lambda verb, name: ServiceUnavailable("lost") if rng.random() < 0.5 else None
        candidates = [Candidate(client, name, clock) for name in ("a", "b", "c")]
        terms = 0
        for _ in range(2400):
            await asyncio.sleep(0.25)
            leading = [each for each in candidates if each.leader.leading]
            assert len(leading) <= 1
            terms = sum(len(each.reigns) for each in candidates)
            if rng.random() < 0.01:
                clock.offset += rng.uniform(-1000, 1000)
        assert terms
        for each in candidates:
            await each.stop()

    run_virtual(main())


def test_the_lease_is_released_when_lead_returns() -> None:
    async def main() -> None:
        client = MemoryClient()
        leader = Leader(client, "lock", "ns", "me", JumpyClock(), steady=asyncio.get_running_loop().time)
        await leader.run(lambda: asyncio.sleep(3))
        assert lease(client)["holderIdentity"] == "" and not leader.leading

        async def broken() -> None:
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            await leader.run(broken)
        assert lease(client)["holderIdentity"] == ""

    run_virtual(main())


def test_invalid_durations_are_rejected() -> None:
    with pytest.raises(ValueError, match="leaseDuration > renewDeadline"):
        Leader(MemoryClient(), "lock", "ns", "me", JumpyClock(), lease_duration=10, renew_deadline=15)


def test_a_lease_written_by_client_go_is_respected() -> None:
    async def main() -> None:
        client = MemoryClient()
        await client.create(
            LEASES,
            {
                "metadata": {"name": "lock", "namespace": "ns", "labels": {"kept": "yes"}},
                "spec": {"holderIdentity": "other", "leaseDurationSeconds": 15, "leaseTransitions": 4, "strategy": "x"},
            },
            "ns",
        )
        loop = asyncio.get_running_loop()
        leader = Leader(client, "lock", "ns", "me", JumpyClock(), steady=loop.time, rng=random.Random(0))
        took = 0.0

        async def lead() -> None:
            nonlocal took
            took = loop.time()

        await leader.run(lead)
        assert 15 <= took <= 20
        assert lease(client)["leaseTransitions"] == 5 and lease(client)["strategy"] == "x"
        assert client.objects["leases", "ns", "lock"]["metadata"]["labels"] == {"kept": "yes"}

    run_virtual(main())
