"""Names of classes on API servers that do not know them: rewriting, the overlay of raw requests, and what is refused."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.systems.resource_class.device_objects import GPU, Document, as_pod, klass, machine, pod, resource
from tests.systems.resource_class.test_plugin import Cluster

from wharfinger.admission.request import SYSTEM, Request
from wharfinger.api.configuration import Configuration
from wharfinger.api.kinds import registry
from wharfinger.api.views import view
from wharfinger.client.informer import InformerSet
from wharfinger.client.local import LocalClient
from wharfinger.store import Store
from wharfinger.systems.resource_class.admission import webhook as resource_class
from wharfinger.systems.resource_class.admission.names import (
    NameRewriter,
    OverlaidReviewer,
    Overlay,
    QuotaNamesReviewer,
)
from wharfinger.systems.resource_class.kinds.views import ResourceClass
from wharfinger.systems.resource_class.plugin.holdings import requested
from wharfinger.systems.resource_class.rules.compute_resources import OVERLAID, RECORD
from wharfinger.systems.resource_class.settings import ResourceClassSettings
from wharfinger.webhook.configurations import WebhookEndpoint, configurations
from wharfinger.webhook.handler import WebhookContext

ALIAS = "resourceclass.scheduling.sigs.x-k8s.io/gold"
CLASSES = [view(each, ResourceClass) for each in (klass("gold"), klass("pair", groupBy="link", groupSize=2))]


def classes() -> list[ResourceClass]:
    return CLASSES


def request(document: Document, operation: str = "CREATE", old: Document | None = None) -> Request:
    kind = registry().of_object(document["apiVersion"], document["kind"])
    assert kind is not None
    return Request(operation, kind.storage, "default", "x", SYSTEM, deepcopy(document), old)


def changed(reviewer: Any, document: Document) -> Document:
    asked = request(document)
    assert reviewer.review(asked).denied is None
    assert asked.object is not None
    return asked.object


def limits(document: Document) -> Any:
    return document["spec"]["containers"][0]["resources"]["limits"]


def test_unqualified_names_become_aliases_in_pods_and_templates() -> None:
    rewritten = changed(NameRewriter(classes), pod("a", {"gold": 2, "cpu": 1, "unknown": 1}))
    later = "resourceclass.scheduling.sigs.x-k8s.io/unknown"  # its class may come yet
    assert limits(rewritten) == {ALIAS: "2", "cpu": "1", later: "1"}
    both = changed(NameRewriter(classes), pod("a", {"gold": 2, ALIAS: 1}))
    assert limits(both) == {ALIAS: "3"}
    template = {"spec": pod("a", {"gold": 2})["spec"]}
    job = {"spec": {"jobTemplate": {"spec": {"template": template}}}}
    for document, path in (
        ({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": template}}, ("spec", "template")),
        ({"apiVersion": "batch/v1", "kind": "CronJob", **job}, ("spec", "jobTemplate", "spec", "template")),
    ):
        found: Any = changed(NameRewriter(classes), document)
        for step in path:
            found = found[step]
        assert limits(found) == {ALIAS: "2"}


def test_a_manifest_that_is_applied_again_means_its_own_names() -> None:
    """Whoever merges it into what is stored sends both names."""
    stored = pod("a", {ALIAS: 2})
    for amounts, wanted in (({ALIAS: 2, "gold": 3}, "3"), ({ALIAS: 1, "gold": 3}, "4"), ({ALIAS: 5}, "5")):
        asked = request(pod("a", amounts), "UPDATE", stored)
        NameRewriter(classes).review(asked)
        assert limits(asked.object or {}) == {ALIAS: wanted}
    for hard in ({f"requests.{ALIAS}": "1", "gold": "2"}, {"gold": "2", f"requests.{ALIAS}": "1"}):
        document = quota()
        document["spec"]["hard"] = hard
        assert changed(NameRewriter(classes), document)["spec"]["hard"] == {f"requests.{ALIAS}": "2"}


def test_a_record_that_a_pod_brings_along_keeps_to_its_requests() -> None:
    bringing = pod("a", {"gold": 2})
    given = [{"computeResourceName": "cr", "count": 2}]
    for text, wanted in (
        (json.dumps({"c": {"gold": given}}), {"c": {ALIAS: given}}),
        (json.dumps({"c": {ALIAS: given}}), {"c": {ALIAS: given}}),
        (json.dumps({"c": {GPU: given}}), {"c": {GPU: given}}),
    ):
        bringing["metadata"]["annotations"] = {RECORD: text}
        found = changed(NameRewriter(classes), bringing)["metadata"]["annotations"][RECORD]
        assert json.loads(found) == wanted
    bringing["metadata"]["annotations"] = {RECORD: "nonsense"}
    assert changed(NameRewriter(classes), bringing)["metadata"]["annotations"][RECORD] == "nonsense"


def quota(**hard: str) -> Document:
    names = {name.replace("_", "."): amount for name, amount in hard.items()}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": names}}


def test_quotas_come_to_limit_what_an_api_server_enforces() -> None:
    for name in ("gold", "requests_gold"):
        rewritten = changed(NameRewriter(classes), quota(**{name: "4", "cpu": "2"}))
        assert rewritten["spec"]["hard"] == {f"requests.{ALIAS}": "4", "cpu": "2"}
    document = quota()
    others = {"count/pods": "3", "services.loadbalancers": "1", "slip": "2", "example.com/unknown": "2"}
    document["spec"]["hard"] = {ALIAS: "1", GPU: "2", **others}
    wanted = {f"requests.{ALIAS}": "1", f"requests.{GPU}": "2", **others}
    assert changed(NameRewriter(classes), document)["spec"]["hard"] == wanted


def test_keys_that_are_never_enforced_are_warned_of() -> None:
    document = quota(cpu="1")
    document["spec"]["hard"] |= {GPU: "2", f"requests.{GPU}": "2", "count/deployments.apps": "1"}
    warnings = QuotaNamesReviewer().review(request(document)).warnings
    assert list(warnings) == [f'spec.hard[{GPU}]: is never enforced for this name; "requests.{GPU}" is']


def test_the_overlay_adds_raw_requests_that_nobody_counts_twice() -> None:
    laid = changed(Overlay(classes), pod("a", {ALIAS: 2, GPU: 1, "pair": 1}))
    assert limits(laid) == {ALIAS: "2", "pair": "1", GPU: "5"}
    assert laid["spec"]["containers"][0]["resources"]["requests"][GPU] == "5"
    assert limits(changed(Overlay(classes), laid)) == limits(laid)  # an API server may ask twice
    assert requested(as_pod(laid)) == {"c": {ALIAS: 2, "pair": 1, GPU: 1}}
    assert (
        changed(Overlay(classes), pod("b", {"cpu": 1}, annotations={OVERLAID: "{}"}))["metadata"]["annotations"] == {}
    )
    cluster = Cluster(klass("gold"), machine("n1", resource("cr", 3)))
    assert cluster.place(changed(Overlay(classes), pod("a", {ALIAS: 2}))) == {ALIAS: {"cr": 2}}
    assert not cluster.fits(pod("b", {GPU: 2})) and cluster.fits(pod("b", {GPU: 1}))


@pytest.mark.parametrize(("overlay", "amount", "denied"), [(True, 2, False), (True, 3, True), (False, 2, True)])
def test_nobody_hides_raw_requests(overlay: bool, amount: int, denied: bool) -> None:
    annotations = {OVERLAID: json.dumps({"c": {GPU: amount}}, separators=(",", ":"))}
    document = pod("a", {ALIAS: 2, GPU: 4}, annotations=annotations)
    review = OverlaidReviewer(classes, overlay=overlay).review(request(document))
    assert (review.denied is not None) is denied


def test_the_annotation_of_the_overlay_never_changes() -> None:
    old, new = pod("a"), pod("a", annotations={OVERLAID: "{}"})
    reviewer = OverlaidReviewer(classes, overlay=True)
    assert reviewer.review(request(new, "UPDATE", old)).denied is not None
    assert reviewer.review(request(new, "UPDATE", new)).denied is None


@pytest.mark.parametrize("anything", [None, [], "x", {"containers": [1, {"resources": 3}]}, {"containers": "x"}])
def test_documents_of_any_shape_pass_to_validation(anything: Any) -> None:
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": anything}
    assert changed(NameRewriter(classes), document)["spec"] == anything
    assert changed(Overlay(classes), document)["spec"] == anything


def test_the_webhook_asks_for_what_its_settings_need() -> None:
    def rules(**settings: bool) -> dict[str, list[str]]:
        client = LocalClient(Store(registry()))
        configuration = Configuration().having(ResourceClassSettings(**settings))
        context = WebhookContext(client, InformerSet(client), registry(), configuration, CollectorRegistry())
        made = configurations(resource_class.handlers(context), WebhookEndpoint(url="https://127.0.0.1:1"), b"")
        return {rule["resources"][0]: rule["operations"] for rule in made[0][1]["webhooks"][0]["rules"]}

    assert rules().keys() == {"resourceclasses"}
    assert rules(overlay=True).keys() == {"pods", "resourceclasses"}
    assert rules(rewrite_names=True)["resourcequotas"] == ["CREATE", "UPDATE"]
    assert rules(rewrite_names=True)["deployments"] == ["CREATE", "UPDATE"]
