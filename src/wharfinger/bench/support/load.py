"""A load of requests at exact times over kept connections: for latencies that hold no waiting of the client's own.

An event loop's timers are whole milliseconds, which is longer than what is measured. This one waits in `select`, and what
it sends was made before.
"""

from __future__ import annotations

import gc
import re
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_STUCK = 30.0  # seconds without any answer


class _Line:
    """One connection with at most one request under way."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext) -> None:
        plain = socket.create_connection((host, port), timeout=10)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = context.wrap_socket(plain, server_hostname=host)
        self.due = 0.0
        self._data = b""

    def send(self, request: bytes, due: float) -> None:
        self.due = due
        self.socket.setblocking(True)
        self.socket.sendall(request)
        self.socket.setblocking(False)

    def answer(self) -> bytes | None:
        """The answer, once all of it is there."""
        while True:
            try:
                data = self.socket.recv(1 << 18)
            except (ssl.SSLWantReadError, BlockingIOError):
                return None
            if not data:
                raise ConnectionResetError("the server closed the connection")
            self._data += data
            end = self._data.find(b"\r\n\r\n")
            length = _LENGTH.search(self._data, 0, end) if end >= 0 else None
            if length is not None and len(self._data) >= end + 4 + int(length[1]):
                answer, self._data = self._data, b""
                return answer


def steady(
    address: tuple[str, int],
    context: ssl.SSLContext,
    requests: Sequence[bytes],
    *,
    rate: float,
    count: int,
    connections: int,
    check: Callable[[bytes], None],
) -> list[float]:
    """Seconds from when each request was due until its answer was there, sorted. Requests do not wait for answers, only
    for a free connection, and that counts."""
    lines = [_Line(*address, context) for _ in range(connections)]
    waiting = {line.socket: line for line in lines}
    idle = deque(lines)
    busy: set[ssl.SSLSocket] = set()
    late: deque[float] = deque()  # due, and no connection was free
    latencies: list[float] = []
    gc.collect()
    gc.disable()  # a pause here would look like one of the server's
    try:
        sent, started = 0, time.perf_counter() + 0.05
        while len(latencies) < count:
            now = time.perf_counter()
            while sent + len(late) < count and started + (sent + len(late)) / rate <= now:
                late.append(started + (sent + len(late)) / rate)
            while late and idle:
                line = idle.popleft()
                line.send(requests[sent % len(requests)], late.popleft())
                busy.add(line.socket)
                sent += 1
            next_due = started + (sent + len(late)) / rate if sent + len(late) < count else now + _STUCK
            ready, _, _ = select.select(busy, (), (), max(0.0, next_due - time.perf_counter()))
            for found in ready:
                line = waiting[found]
                answer = line.answer()
                if answer is not None:
                    latencies.append(time.perf_counter() - line.due)
                    check(answer)
                    busy.discard(found)
                    idle.append(line)
            if not ready and sent == count and time.perf_counter() - now >= _STUCK:
                raise TimeoutError("the server does not answer any more")
    finally:
        gc.enable()
        for line in lines:
            line.socket.close()
    return sorted(latencies)
