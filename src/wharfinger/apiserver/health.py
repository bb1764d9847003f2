"""`/healthz`, `/livez` and `/readyz` with named checks, in the plain-text format of kube-apiserver."""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.apiserver.exchange import ApiExchange
from wharfinger.apiserver.resources import unknown_path

Check = Callable[[], str]
"""Returns an error message; empty if the check passes."""

ENDPOINTS = frozenset(("healthz", "livez", "readyz"))
TEXT = "text/plain; charset=utf-8"


class HealthEndpoints:
    def __init__(self, checks: dict[str, Check], ready: dict[str, Check]) -> None:
        self._live = checks
        self._ready = {**checks, **ready}

    async def serve(self, exchange: ApiExchange) -> None:
        endpoint, *rest = exchange.parts
        checks = self._ready if endpoint == "readyz" else self._live
        if rest:
            if len(rest) > 1 or rest[0] not in checks:
                raise unknown_path()
            checks = {rest[0]: checks[rest[0]]}
        excluded = exchange.query.text("exclude")
        lines, failed = [], []
        for name, check in checks.items():
            if name == excluded:
                lines.append(f"[+]{name} excluded: ok")
            elif error := check():
                failed.append(name)
                lines.append(f"[-]{name} failed: {error}")
            else:
                lines.append(f"[+]{name} ok")
        if failed:
            text = "\n".join((*lines, f"{endpoint} check failed", ""))
            await exchange.answer(500, text.encode(), TEXT)
        elif exchange.query.has("verbose"):
            text = "\n".join((*lines, f"{endpoint} check passed", ""))
            await exchange.answer(200, text.encode(), TEXT)
        else:
            await exchange.answer(200, b"ok", TEXT)
