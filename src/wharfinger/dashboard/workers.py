"""Runs what-ifs in processes of their own, with limits on time and memory, so that a large one never delays an answer."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from wharfinger.api.errors import ApiError, BadRequest, InternalError, ServiceUnavailable, TooManyRequests
from wharfinger.api.registry import Document

_PAUSE = 500  # objects that are encoded before other tasks run


@dataclass(frozen=True, slots=True)
class WorkLimits:
    seconds: float = 120.0
    megabytes: int = 4096
    at_once: int = 2
    waiting: int = 8  # further requests that wait for a place


class WorkTooLong(ServiceUnavailable):
    """The work was ended because it took more than its limit."""


class Workers:
    """One process for each question. The next one is started beforehand, since imports take most of a small question."""

    def __init__(self, limits: WorkLimits | None = None) -> None:
        self.limits = limits or WorkLimits()
        self._places = asyncio.Semaphore(self.limits.at_once)
        self._queued = 0
        self._spare: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()

    async def prepare(self) -> None:
        async with self._lock:
            if self._spare is None or self._spare.returncode is not None:
                self._spare = await self._spawn()

    async def _spawn(self) -> asyncio.subprocess.Process:
        env = {**os.environ, "WHARF_WORKER_MEGABYTES": str(self.limits.megabytes)}
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "wharfinger.dashboard.worker",
            env=env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, task: str, arguments: Document, snapshot: Iterable[Document]) -> Any:
        """What the worker answers. Raises ApiError: BadRequest for input that cannot be used."""
        if self._queued >= self.limits.at_once + self.limits.waiting:
            raise TooManyRequests("too many what-ifs are running; try again in a moment")
        self._queued += 1
        try:
            async with self._places:
                return await self._run(task, arguments, snapshot)
        finally:
            self._queued -= 1

    async def _run(self, task: str, arguments: Document, snapshot: Iterable[Document]) -> Any:
        async with self._lock:
            process, self._spare = self._spare, None
        if process is None or process.returncode is not None:
            process = await self._spawn()
        starting = asyncio.create_task(self.prepare())
        try:
            async with asyncio.timeout(self.limits.seconds):
                output, errors = await self._exchange(process, task, arguments, snapshot)
        except TimeoutError:
            raise WorkTooLong(
                f"the what-if was ended after {self.limits.seconds:g} s; ask about a smaller change"
            ) from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            await asyncio.gather(starting, return_exceptions=True)
        return _answer(output, errors, self.limits)

    async def _exchange(
        self, process: asyncio.subprocess.Process, task: str, arguments: Document, snapshot: Iterable[Document]
    ) -> tuple[bytes, bytes]:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        reading = asyncio.gather(process.stdout.read(), process.stderr.read())
        try:
            process.stdin.write(msgspec.json.encode({"task": task, "arguments": arguments}) + b"\n")
            lines: list[bytes] = []
            for document in snapshot:
                lines.append(msgspec.json.encode(document))
                if len(lines) >= _PAUSE:
                    process.stdin.write(b"\n".join(lines) + b"\n")
                    lines.clear()
                    await process.stdin.drain()
                    await asyncio.sleep(0)
            if lines:
                process.stdin.write(b"\n".join(lines) + b"\n")
            await process.stdin.drain()
            process.stdin.close()
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has ended already; its output says why
        output, errors = await reading
        await process.wait()
        return output, errors

    async def close(self) -> None:
        async with self._lock:
            if self._spare is not None and self._spare.returncode is None:
                self._spare.kill()
                await self._spare.wait()
            self._spare = None


def _answer(output: bytes, errors: bytes, limits: WorkLimits) -> Any:
    try:
        answer = msgspec.json.decode(output)
    except msgspec.DecodeError:
        if b"MemoryError" in errors:
            raise ServiceUnavailable(f"the what-if needs more than {limits.megabytes} MB") from None
        lines = errors.decode(errors="replace").strip().splitlines()
        raise InternalError(f"the what-if failed: {lines[-1] if lines else 'it was ended by the system'}") from None
    if problems := answer.get("problems"):
        raise BadRequest("\n".join(problems))
    if error := answer.get("error"):
        raise ApiError(error)
    return answer["result"]
