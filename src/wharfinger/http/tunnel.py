"""Joins two connections: what arrives on one is written to the other, no faster than it is read there."""

from __future__ import annotations

import asyncio
from typing import cast


class TunnelEnd(asyncio.Protocol):
    """One of the two connections. Until it is joined, what arrives is kept in `early`."""

    def __init__(self) -> None:
        self.early = bytearray()
        self.transport: asyncio.Transport | None = None
        self.arrived = asyncio.Event()  # data has arrived, or the connection is lost
        self.closed = asyncio.Event()
        self._peer: TunnelEnd | None = None

    def join(self, peer: TunnelEnd) -> None:
        self._peer, peer._peer = peer, self
        for end in (self, peer):
            early, end.early = bytes(end.early), bytearray()
            if early:
                end.data_received(early)
        for end in (self, peer):
            if end.closed.is_set():
                self.close()

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.closed.is_set():
            self.transport.write(data)

    def close(self) -> None:
        """Closes both connections once their write buffers are flushed."""
        for end in (self, self._peer):
            if end is not None and end.transport is not None:
                end.transport.close()

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._peer is None:
            self.early += data
            self.arrived.set()
        else:
            self._peer.write(data)

    def eof_received(self) -> bool:
        return False  # TLS cannot close one direction only

    def pause_writing(self) -> None:
        if self._peer is not None and self._peer.transport is not None and not self._peer.closed.is_set():
            self._peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self._peer is not None and self._peer.transport is not None and not self._peer.closed.is_set():
            self._peer.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
        self.arrived.set()
        self.close()
