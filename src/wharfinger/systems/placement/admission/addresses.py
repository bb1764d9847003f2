"""Addresses of clusters: which URLs Open Cluster Management's webhook accepts, which parses them with Go's net/url."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_USER = re.compile(r"[-A-Za-z0-9._:~!$&'()*+,;=%@]*")
_HOST = re.compile(r"""(?:[-A-Za-z0-9._~!$&'()*+,;=:<>"]|[^\x00-\x7f]|%25|%[89A-Fa-f][0-9A-Fa-f])*""")
_BRACKETS = re.compile(r"\[[^][]*\]")  # around an address of version 6
_PORT = re.compile(r"(?::[0-9]*)?")


def is_https_url(text: str) -> bool:
    """Whether Go parses this as a URL with the scheme https; it need not have a host."""
    address, _, fragment = text.partition("#")
    if _CONTROL.search(text) or address[:6].lower() != "https:" or _BAD_ESCAPE.search(fragment):
        return False
    rest = address[6:].partition("?")[0]
    if not rest.startswith("//"):
        return not rest.startswith("/") or not _BAD_ESCAPE.search(rest)  # without a slash, Go takes it as it is
    authority, _, path = rest[2:].partition("/")
    return _is_authority(authority) and not _BAD_ESCAPE.search(path)


def _is_authority(text: str) -> bool:
    user, _, place = text.rpartition("@")
    if not _USER.fullmatch(user) or _BAD_ESCAPE.search(user):
        return False
    if place.startswith("["):
        end = place.rfind("]") + 1
        return bool(_BRACKETS.fullmatch(place[:end]) and _PORT.fullmatch(place[end:]))
    colon = place.rfind(":")
    return bool(_HOST.fullmatch(place) and (colon < 0 or _PORT.fullmatch(place[colon:])))
