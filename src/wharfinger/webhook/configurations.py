"""The webhook configurations in the API server: which requests it sends to us, to which address, and which CA it trusts."""

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
from wharfinger.webhook.handler import Rule, WebhookHandler, fail_open

log = logging.getLogger(__name__)

NAME = "wharfinger"
WEBHOOK = "admission.wharfinger.dev"
SYSTEM_NAMESPACE = "kube-system"


@dataclass(frozen=True, slots=True)
class WebhookEndpoint:
    """Where API servers reach the webhook: a Service, or a URL if they are outside the cluster network."""

    url: str = ""  # https://host:port
    service: str = ""
    namespace: str = ""
    port: int = 443

    def names(self) -> tuple[str, ...]:
        """The names that the serving certificate needs."""
        if self.url:
            return (urlsplit(self.url).hostname or "",)
        return (f"{self.service}.{self.namespace}.svc", f"{self.service}.{self.namespace}.svc.cluster.local")

    def client_config(self, path: str, bundle: bytes) -> Document:
        trusted = {"caBundle": b64encode(bundle).decode()}
        if self.url:
            return {"url": f"{self.url.rstrip('/')}{path}", **trusted}
        service = {"namespace": self.namespace, "name": self.service, "path": path, "port": self.port}
        return {"service": service, **trusted}


def configurations(
    handlers: Iterable[WebhookHandler], endpoint: WebhookEndpoint, bundle: bytes
) -> list[tuple[Resource, Document]]:
    """One mutating and one validating configuration. The validating one sees changes that later mutating webhooks made."""
    all_handlers = list(handlers)
    rules = [rule for handler in all_handlers for rule in handler.rules]
    made = [
        (MUTATING_WEBHOOKS, _configuration(MUTATING_WEBHOOKS, "/mutate", rules, endpoint, bundle)),
        (VALIDATING_WEBHOOKS, _configuration(VALIDATING_WEBHOOKS, "/validate", rules, endpoint, bundle)),
    ]
    for _, configuration in made:
        configuration["webhooks"][0]["failurePolicy"] = "Ignore" if fail_open(all_handlers) else "Fail"
        configuration["metadata"]["annotations"] = {
            key: value for handler in all_handlers for key, value in handler.annotations.items()
        }
    return made


def _configuration(
    resource: Resource, path: str, rules: list[Rule], endpoint: WebhookEndpoint, bundle: bytes
) -> Document:
    mutating = resource == MUTATING_WEBHOOKS
    wanted: list[Document] = []
    for rule in rules:
        document = rule.document()
        if (rule.mutating or not mutating) and document not in wanted:
            wanted.append(document)
    webhook: Document = {
        "name": WEBHOOK,
        "admissionReviewVersions": ["v1"],
        "clientConfig": endpoint.client_config(path, bundle),
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "rules": wanted,
    }
    # Neither the cluster's own pods nor the webhook's wait for it: they must be able to start while it is not running.
    spared = sorted({SYSTEM_NAMESPACE, endpoint.namespace} - {""})
    others = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": spared}
    webhook["namespaceSelector"] = {"matchExpressions": [others]}
    if mutating:
        webhook["reinvocationPolicy"] = "IfNeeded"
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/managed-by": "wharfinger"}},
        "webhooks": [webhook],
    }


async def ensure(
    client: Client, handlers: Iterable[WebhookHandler], endpoint: WebhookEndpoint, bundle: bytes
) -> list[str]:
    """Creates or updates the configurations. Returns a line for each change."""
    done = []
    for resource, wanted in configurations(handlers, endpoint, bundle):
        done += await _ensure(client, resource, wanted)
    return done


async def _ensure(client: Client, resource: Resource, wanted: Document) -> list[str]:
    while True:
        try:
            current = await client.get(resource, NAME)
        except NotFound:
            with suppress(AlreadyExists):  # another replica created it; compare with that
                await client.create(resource, wanted)
                return [f"created {resource.kind} {NAME}"]
            continue
        metadata, annotations = current["metadata"], wanted["metadata"]["annotations"]
        if _includes(current.get("webhooks"), wanted["webhooks"]) and _includes(
            metadata.get("annotations") or {}, annotations
        ):
            return []
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
        with suppress(Conflict):
            await client.update(resource, {**current, "webhooks": wanted["webhooks"]})
            return [f"updated {resource.kind} {NAME}"]


async def ensure_conversion(client: Client, registry: Registry, endpoint: WebhookEndpoint, bundle: bytes) -> list[str]:
    """Sets the conversion webhook of our kinds that have several versions. Definitions with another webhook are left alone."""
    done = []
    for kind in registry:
        if not (kind.ours and kind.convert is not None and len(kind.versions) > 1):
            continue
        name = f"{kind.plural}.{kind.group}"
        try:
            current = await client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        except NotFound:
            continue
        webhook = {"conversionReviewVersions": ["v1"], "clientConfig": endpoint.client_config("/convert", bundle)}
        wanted = {"strategy": "Webhook", "webhook": webhook}
        have = current["spec"].get("conversion") or {}
        foreign = have.get("strategy") == "Webhook" and _is_other_webhook(have, endpoint)
        served = [each["name"] for each in current["spec"].get("versions", ()) if each.get("served")]
        if foreign or len(served) < 2 or _includes(have, wanted):
            continue
        with suppress(Conflict):  # retried at the next interval
            changed = {**current, "spec": {**current["spec"], "conversion": wanted}}
            await client.update(CUSTOM_RESOURCE_DEFINITIONS, changed)
            done.append(f"conversion of {name}")
    return done


def _is_other_webhook(conversion: Document, endpoint: WebhookEndpoint) -> bool:
    """Whether a conversion points to a webhook other than ours."""
    have = (conversion.get("webhook") or {}).get("clientConfig") or {}
    ours = endpoint.client_config("/convert", b"")
    return have.get("url") != ours.get("url") or (have.get("service") or {}).get("name") != (
        ours.get("service") or {}
    ).get("name")


def _includes(current: object, wanted: object) -> bool:
    """Whether `current` has everything in `wanted`; the API server adds defaults."""
    if isinstance(wanted, dict):
        return isinstance(current, dict) and all(_includes(current.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(current, list)
            and len(current) == len(wanted)
            and all(_includes(have, want) for have, want in zip(current, wanted, strict=True))
        )
    return current == wanted
