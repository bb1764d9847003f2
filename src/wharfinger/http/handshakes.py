"""Accepts connections and completes their TLS handshakes, with a limit on how many are incomplete, and for how long.

Whoever opens sockets and sends nothing holds a file descriptor for each, and a server of uvloop stops listening for ever
when there are none left. Beyond the limit the oldest incomplete handshake is given up, of the address that has most of
them. Clients complete theirs within milliseconds, so they are never the oldest.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable

log = logging.getLogger(__name__)

MAX_HANDSHAKES = 500
HANDSHAKE_TIMEOUT = 10.0  # seconds
_ACCEPTED_AT_ONCE = 64  # before other callbacks of the event loop run
_PAUSE = 1.0  # seconds without accepting when there is no file descriptor left


class Handshakes:
    """The incomplete handshakes of a server: at most `most`, each for at most so many `seconds`."""

    def __init__(self, most: int = MAX_HANDSHAKES, seconds: float = HANDSHAKE_TIMEOUT) -> None:
        self.seconds = seconds
        self.given_up = 0
        self._most = most
        self._count = 0
        self._of: dict[str, dict[socket.socket, None]] = {}  # by address, oldest first

    @property
    def count(self) -> int:
        return self._count

    def began(self, address: str, connection: socket.socket) -> None:
        if self._count >= self._most:
            of = max(self._of, key=lambda each: len(self._of[each]))
            oldest = next(iter(self._of[of]))
            self.given_up += 1
            self.ended(of, oldest)
            give_up(oldest)
        self._of.setdefault(address, {})[connection] = None
        self._count += 1

    def ended(self, address: str, connection: socket.socket) -> None:
        mine = self._of.get(address, {})
        if connection in mine:  # or it was given up
            del mine[connection]
            self._count -= 1
            if not mine:
                del self._of[address]

    def give_up_all(self) -> None:
        for mine in list(self._of.values()):
            for connection in list(mine):
                give_up(connection)


def give_up(connection: socket.socket) -> None:
    """Lets the handshake fail: the event loop reads the end of the stream, and closes the socket."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class TlsListener:
    """Accepts on one socket. Every connection gets a protocol of `make` once its handshake is complete."""

    def __init__(
        self,
        listener: socket.socket,
        tls: ssl.SSLContext,
        make: Callable[[], asyncio.Protocol],
        handshakes: Handshakes,
        backlog: int,
    ) -> None:
        self._listener = listener
        self._tls = tls
        self._make = make
        self._handshakes = handshakes
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        listener.listen(backlog)
        self._loop.add_reader(listener, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("cannot accept connections, trying again in %d s: %s", _PAUSE, error)
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(_PAUSE, self._resume)
                return
            connection.setblocking(False)
            with contextlib.suppress(OSError):  # the client may have left already
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = self._loop.create_task(self._shake_hands(str(address[0]), connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)

    async def _shake_hands(self, address: str, connection: socket.socket) -> None:
        self._handshakes.began(address, connection)
        try:
            await self._loop.connect_accepted_socket(
                self._make, connection, ssl=self._tls, ssl_handshake_timeout=self._handshakes.seconds
            )
        except OSError:  # no TLS, no common version or cipher, a certificate that is not ours, or too slow
            pass
        finally:
            self._handshakes.ended(address, connection)

    # What uvicorn calls when it stops

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        else:
            self._loop.remove_reader(self._listener)
        self._listener.close()
        self._handshakes.give_up_all()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)
