"""The limit of open files of this process. Every connection takes a file descriptor."""

from __future__ import annotations

import contextlib

_WANTED = 65_536


def raise_file_limit() -> None:
    """Raises the limit as far as needed and allowed; the usual one of 1024 is soon reached."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _WANTED if hard == resource.RLIM_INFINITY else min(_WANTED, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most_connections() -> int | None:
    """How many connections a server may have; None if that is not limited. An eighth of the files is left for data, for
    calls of other servers and for connections that are being opened."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            return soft - soft // 8
    return None
