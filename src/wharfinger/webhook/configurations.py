"""The webhook configurations: what the API server sends us, where, and whose certificates it trusts there."""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from wharfinger.api.errors import AlreadyExists, Conflict, NotFound
from wharfinger.api.kinds.builtin import CUSTOM_RESOURCE_DEFINITIONS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from wharfinger.api.registry import Document, Registry, Resource
from wharfinger.client.interface import Client
from wharfinger.webhook.handler import Handler, Rule

log = logging.getLogger(__name__)

NAME = "wharfinger"
WEBHOOK = "admission.wharfinger.dev"


@dataclass(frozen=True, slots=True)
class Target:
    """Where API servers reach us: a Service, or a URL for servers outside the cluster's network."""

    url: str = ""  # https://host:port
    service: str = ""
    namespace: str = ""
    port: int = 443

    def names(self) -> tuple[str, ...]:
        """The names that our certificate must carry."""
        if self.url:
            return (urlsplit(self.url).hostname or "",)
        return (f"{self.service}.{self.namespace}.svc", f"{self.service}.{self.namespace}.svc.cluster.local")

    def client_config(self, path: str, bundle: bytes) -> Document:
        trusted = {"caBundle": b64encode(bundle).decode()}
        if self.url:
            return {"url": f"{self.url.rstrip('/')}{path}", **trusted}
        service = {"namespace": self.namespace, "name": self.service, "path": path, "port": self.port}
        return {"service": service, **trusted}


def configurations(handlers: Iterable[Handler], target: Target, bundle: bytes) -> list[tuple[Resource, Document]]:
    """One mutating and one validating configuration; a later mutation cannot slip past the second."""
    asked = list(handlers)
    rules = [rule for handler in asked for rule in handler.rules]
    made = [
        (MUTATING_WEBHOOKS, _configuration(MUTATING_WEBHOOKS, "/mutate", rules, target, bundle)),
        (VALIDATING_WEBHOOKS, _configuration(VALIDATING_WEBHOOKS, "/validate", rules, target, bundle)),
    ]
    for _, configuration in made:
        configuration["metadata"]["annotations"] = {
            key: value for handler in asked for key, value in handler.annotations.items()
        }
    return made


def _configuration(resource: Resource, path: str, rules: list[Rule], target: Target, bundle: bytes) -> Document:
    mutating = resource == MUTATING_WEBHOOKS
    wanted: list[Document] = []
    for rule in rules:
        document = rule.document()
        if (rule.mutating or not mutating) and document not in wanted:
            wanted.append(document)
    webhook: Document = {
        "name": WEBHOOK,
        "admissionReviewVersions": ["v1"],
        "clientConfig": target.client_config(path, bundle),
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "rules": wanted,
    }
    if target.namespace:
        # Our own pods must be able to start while we are not running.
        own = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [target.namespace]}
        webhook["namespaceSelector"] = {"matchExpressions": [own]}
    if mutating:
        webhook["reinvocationPolicy"] = "IfNeeded"
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/managed-by": "wharfinger"}},
        "webhooks": [webhook],
    }


async def ensure(client: Client, handlers: Iterable[Handler], target: Target, bundle: bytes) -> list[str]:
    """Creates the configurations, or brings them up to date. Returns what was done."""
    done = []
    for resource, wanted in configurations(handlers, target, bundle):
        done += await _ensure(client, resource, wanted)
    return done


async def _ensure(client: Client, resource: Resource, wanted: Document) -> list[str]:
    while True:
        try:
            current = await client.get(resource, NAME)
        except NotFound:
            with suppress(AlreadyExists):  # another replica was first; what it wrote is looked at
                await client.create(resource, wanted)
                return [f"created {resource.kind} {NAME}"]
            continue
        metadata, told = current["metadata"], wanted["metadata"]["annotations"]
        if _holds(current.get("webhooks"), wanted["webhooks"]) and _holds(metadata.get("annotations") or {}, told):
            return []
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **told}
        with suppress(Conflict):
            await client.update(resource, {**current, "webhooks": wanted["webhooks"]})
            return [f"updated {resource.kind} {NAME}"]


async def ensure_conversion(client: Client, registry: Registry, target: Target, bundle: bytes) -> list[str]:
    """Points the conversion of our kinds that have several versions to us. Definitions of others are left alone."""
    done = []
    for kind in registry:
        if not (kind.ours and kind.convert is not None and len(kind.versions) > 1):
            continue
        name = f"{kind.plural}.{kind.group}"
        try:
            current = await client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        except NotFound:
            continue
        webhook = {"conversionReviewVersions": ["v1"], "clientConfig": target.client_config("/convert", bundle)}
        wanted = {"strategy": "Webhook", "webhook": webhook}
        have = current["spec"].get("conversion") or {}
        theirs = have.get("strategy") == "Webhook" and _elsewhere(have, target)
        served = [each["name"] for each in current["spec"].get("versions", ()) if each.get("served")]
        if theirs or len(served) < 2 or _holds(have, wanted):
            continue
        with suppress(Conflict):  # then it is looked at again soon
            changed = {**current, "spec": {**current["spec"], "conversion": wanted}}
            await client.update(CUSTOM_RESOURCE_DEFINITIONS, changed)
            done.append(f"conversion of {name}")
    return done


def _elsewhere(conversion: Document, target: Target) -> bool:
    """Whether someone else's webhook converts."""
    have = (conversion.get("webhook") or {}).get("clientConfig") or {}
    mine = target.client_config("/convert", b"")
    return have.get("url") != mine.get("url") or (have.get("service") or {}).get("name") != (
        mine.get("service") or {}
    ).get("name")


def _holds(current: object, wanted: object) -> bool:
    """Whether all that is wanted is there; an API server fills in more."""
    if isinstance(wanted, dict):
        return isinstance(current, dict) and all(_holds(current.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(current, list)
            and len(current) == len(wanted)
            and all(_holds(have, want) for have, want in zip(current, wanted, strict=True))
        )
    return current == wanted
