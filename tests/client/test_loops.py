"""What the event loop of our programs reports."""

from __future__ import annotations

import asyncio
import logging

import pytest

from wharfinger.client.loops import new_event_loop


@pytest.mark.parametrize(
    ("error", "closing", "reported"),
    [(RuntimeError("closed"), True, False), (RuntimeError("open"), False, True), (ValueError("x"), True, True)],
)
def test_data_on_a_closed_connection_is_no_error(
    error: Exception, closing: bool, reported: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Connection(asyncio.Transport):
        def is_closing(self) -> bool:
            return closing

    loop = new_event_loop()
    with caplog.at_level(logging.ERROR):
        loop.call_exception_handler({"message": "Fatal error", "exception": error, "transport": Connection()})
    loop.close()
    assert bool(caplog.records) == reported
