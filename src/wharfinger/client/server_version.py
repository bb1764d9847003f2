"""Which version of Kubernetes to follow on a server, whatever it answers."""

from __future__ import annotations

import asyncio
import logging

from wharfinger.api.errors import ApiError, Forbidden, NotFound
from wharfinger.api.kubernetes_version import REFERENCE, KubernetesVersion
from wharfinger.client.backoff import Backoff
from wharfinger.client.interface import Client

log = logging.getLogger(__name__)

REFUSALS = 5  # a server that has just started refuses requests until it knows its roles


async def version_to_follow(client: Client, *, refusals: int = REFUSALS) -> KubernetesVersion:
    """Waits for a server that cannot be reached. One that does not tell its version is taken for the reference."""
    backoff = Backoff(0.5, 10.0)
    while True:
        try:
            return await client.kubernetes_version()
        except (Forbidden, NotFound) as error:
            refusals -= 1
            if refusals <= 0:
                log.warning("the server does not tell its version (%s); following Kubernetes %s", error, REFERENCE)
                return REFERENCE
        except ApiError as error:
            log.warning("cannot read the version of the server: %s", error)
        await asyncio.sleep(backoff.next())
