"""What the event loop of our programs reports."""

from __future__ import annotations

import logging

import pytest

from wharfinger.client.loops import new_event_loop


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed"), False),
        (RuntimeError("other"), True),
        (ValueError("the handler is closed"), True),
    ],
)
def test_data_on_a_closed_connection_is_no_error(
    error: Exception, reported: bool, caplog: pytest.LogCaptureFixture
) -> None:
    loop = new_event_loop()
    with caplog.at_level(logging.ERROR):
        loop.call_exception_handler({"message": "Fatal error on SSL protocol", "exception": error})
    loop.close()
    assert bool(caplog.records) == reported
