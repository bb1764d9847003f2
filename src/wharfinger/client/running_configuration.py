"""Reads the configuration that a control plane publishes, so that answers about it follow the same settings."""

from __future__ import annotations

from contextlib import suppress

import yaml

from wharfinger.api.configuration import (
    PUBLISHED_KEY,
    PUBLISHED_NAME,
    BadConfiguration,
    Configuration,
    load_configuration,
)
from wharfinger.api.errors import Forbidden, NotFound
from wharfinger.api.kinds.builtin import CONFIG_MAPS
from wharfinger.client.interface import Client

NAMESPACES = ("kube-system", "wharfinger-system")  # of the embedded API server, and of `wharf install`


async def running_configuration(client: Client) -> Configuration | None:
    """None if none is published, or if this user may not read it."""
    for namespace in NAMESPACES:
        with suppress(NotFound, Forbidden, KeyError, yaml.YAMLError, BadConfiguration):
            found = await client.get(CONFIG_MAPS, PUBLISHED_NAME, namespace)
            return load_configuration(yaml.safe_load(found["data"][PUBLISHED_KEY]) or {})
    return None
