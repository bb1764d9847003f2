"""The minor versions of Kubernetes whose stock behaviour is implemented.

The engine is built for one of them (`Engine(…, kubernetes=…)`). A configuration names it as `kubernetesVersion`; live
components otherwise ask the API server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum


class KubernetesVersion(IntEnum):
    """Ordered, so that a rule can say since when it holds: `tables.kubernetes >= KubernetesVersion.V1_37`."""

    V1_36 = 36
    V1_37 = 37

    def __str__(self) -> str:
        return f"1.{self.value}"


REFERENCE = KubernetesVersion.V1_37
"""What everything follows unless told otherwise."""

RELEASES = {KubernetesVersion.V1_36: "1.36.4", KubernetesVersion.V1_37: "1.37.1"}
"""The release that each version was compared with, case by case."""

SUPPORTED = tuple(map(str, KubernetesVersion))

_MINOR = re.compile(r"\d+")


def named_version(text: str) -> KubernetesVersion:
    """`"1.36"`; one of `SUPPORTED`."""
    return list(KubernetesVersion)[SUPPORTED.index(text)]


def version_of_server(answer: Mapping[str, object]) -> KubernetesVersion:
    """The version to follow on a server that gives this answer to `/version`: its own, or the nearest that there is.

    Servers of cloud providers have minor versions such as `36+`.
    """
    minor = _MINOR.match(str(answer.get("minor", "")))
    if str(answer.get("major")) != "1" or minor is None:
        return REFERENCE
    return KubernetesVersion(min(max(int(minor[0]), min(KubernetesVersion)), max(KubernetesVersion)))
