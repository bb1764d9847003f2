"""What the event loop of our programs reports."""

from __future__ import annotations

import asyncio
import logging

import pytest

from wharfinger.client.loops import new_event_loop


@pytest.mark.parametrize(
    ("error", "closed", "reported"),
    [(RuntimeError("closed"), True, False), (RuntimeError("open"), False, True), (ValueError("x"), True, True)],
)
def test_data_on_a_closed_connection_is_no_error(
    error: Exception, closed: bool, reported: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        transport, _ = await loop.create_connection(asyncio.Protocol, *server.sockets[0].getsockname())
        if closed:
            transport.abort()
        loop.call_exception_handler({"message": "Fatal error", "exception": error, "transport": transport})
        transport.abort()
        server.close()

    with caplog.at_level(logging.ERROR), asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(body())
    assert bool(caplog.records) == reported
