"""A way to an API server that can be cut: bytes pass through it until it falls silent or refuses."""

from __future__ import annotations

import contextlib
import socket
import threading


class Proxy:
    """Forwards connections on a port of its own to another on this machine.

    `silence` lets nothing through any more, as a network that drops packets: connections stay, and what is on its way
    arrives when it is healed. `refuse` closes all connections, as a host that is gone.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._flowing = threading.Event()
        self._flowing.set()
        self._sockets: set[socket.socket] = set()
        self._listener = _listen(0)
        self.port: int = self._listener.getsockname()[1]
        self._accept(self._listener)

    def silence(self) -> None:
        self._flowing.clear()

    def refuse(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in list(self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        if self._listener.fileno() < 0:
            self._listener = _listen(self.port)
            self._accept(self._listener)
        self._flowing.set()

    def close(self) -> None:
        if self._listener.fileno() >= 0:
            self.refuse()
        self._flowing.set()

    def _accept(self, listener: socket.socket) -> None:
        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    near, _ = listener.accept()
                    self._connect(near)

        threading.Thread(target=serve, daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            near.close()
            return
        self._sockets |= {near, far}
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._flowing.wait()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        self._sockets.discard(source)


def _listen(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port), backlog=64)
