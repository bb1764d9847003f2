"""A leader suspended by a signal until its lease has expired, with real processes and clocks."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.client.servers import Reply, Request, Server

SOURCE = Path(__file__).parents[2] / "src"

LEADER = """
import asyncio, sys
import uvloop
from wharfinger.api.errors import ApiError
from wharfinger.api.kinds.builtin import CONFIG_MAPS
from wharfinger.client.access import ClusterAccess
from wharfinger.client.fence import FencedClient
from wharfinger.client.http import HttpClient
from wharfinger.client.leases import Leader
from wharfinger.client.timers import SystemClock

async def main():
    client = HttpClient(ClusterAccess(sys.argv[1]))
    leader = Leader(client, "lock", "ns", "frozen", SystemClock(),
                    lease_duration=1.0, renew_deadline=0.6, retry_period=0.2)
    writer = FencedClient(client, leader.check)
    async def lead():
        while True:  # as fast as it can, so that the signal hits it in the middle of a request
            try:
                await writer.create(CONFIG_MAPS, {"metadata": {"name": "x"}}, "ns")
            except ApiError:
                await asyncio.sleep(0.01)
    await leader.run(lead)

(uvloop.run if sys.argv[2] == "uvloop" else asyncio.run)(main())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_suspended_leader_writes_nothing_after_it_resumes(loop: str) -> None:
    lease: dict[str, Any] = {}
    writes: list[str] = []  # who held the lease when a write arrived

    async def script(request: Request, reply: Reply) -> None:
        if "leases" not in request.path:
            writes.append(lease["spec"]["holderIdentity"])
            await reply.answer(201, {})
        elif request.method == "GET":
            await (reply.answer(200, lease) if lease else reply.status(404, "NotFound"))
        else:
            sent = request.json()
            if lease and sent["metadata"].get("resourceVersion") != lease["metadata"]["resourceVersion"]:
                await reply.status(409, "Conflict")
                return
            lease.clear()
            lease.update(sent)
            lease["metadata"]["resourceVersion"] = str(int(sent["metadata"].get("resourceVersion", "0")) + 1)
            await reply.answer(200, lease)

    async def main() -> None:
        async with Server(script) as server:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", LEADER, server.url, loop, env={**os.environ, "PYTHONPATH": str(SOURCE)}
            )
            try:
                while len(writes) < 20:
                    await asyncio.sleep(0.01)
                process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(1.2)  # its lease expires, and another process acquires it
                lease["metadata"]["resourceVersion"] += "0"
                lease["spec"]["holderIdentity"] = "another"
                lease["spec"]["leaseDurationSeconds"] = 3600
                writes.clear()
                process.send_signal(signal.SIGCONT)
                renewals = len([request for request in server.requests if "leases" in request.path])
                while len([request for request in server.requests if "leases" in request.path]) < renewals + 3:
                    await asyncio.sleep(0.01)
                assert len(writes) <= 1, "one request may have been on the wire"
            finally:
                process.kill()
                await process.wait()

    asyncio.run(asyncio.wait_for(main(), 60))
