"""Claims for devices at admission: administrative access, who may allocate, times of taints, quota. The texts are those of
kube-apiserver 1.37.1."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.api import device_cases as cases
from tests.api.test_device_rules import ANSWERS

from wharfinger.admission.device_claims import ADMIN_NAMESPACE_LABEL
from wharfinger.admission.request import SYSTEM, User, service_account
from wharfinger.api.device_quota import EXTENDED_CLAIM
from wharfinger.api.errors import ApiError
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DEVICE_CLASSES,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
)
from wharfinger.api.registry import Document, Resource
from wharfinger.api.requests import PatchType
from wharfinger.client.local import LocalClient
from wharfinger.store.default_chain import extend_chain
from wharfinger.store.store import Store

ALICE = User("alice", ("system:authenticated",))
LABEL_NEEDED = "Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
DEVICE = {"driver": cases.DRIVER, "pool": "n1", "device": "gpu-0"}


def with_store(scenario: Callable[[Store], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        store = Store(registry(), now=lambda: 1_800_000_000.0)
        extend_chain(store.chain, store, complete=False)
        await store.create(NAMESPACES, {"metadata": {"name": "default"}})
        await scenario(store)

    asyncio.run(run())


async def refusal(writing: Coroutine[Any, Any, Any]) -> str:
    with pytest.raises(ApiError) as caught:
        await writing
    return caught.value.message


def named(name: str, document: Document) -> Document:
    return {**document, "metadata": {"name": name}}


def test_administrative_access_needs_a_labelled_namespace() -> None:
    async def scenario(store: Store) -> None:
        asked = cases.exactly(adminAccess=True)
        claim, template = cases.claim(asked), cases.template(asked)
        path = "spec.devices.requests[0].adminAccess"
        assert await refusal(store.create(RESOURCE_CLAIMS, claim, "default")) == (
            f'ResourceClaim.resource.k8s.io "x" is invalid: {path}: {LABEL_NEEDED}'
        )
        assert await refusal(store.create(RESOURCE_CLAIM_TEMPLATES, template, "default")) == (
            f'ResourceClaimTemplate.resource.k8s.io "x" is invalid: {path}: {LABEL_NEEDED}'
        )
        await store.create(RESOURCE_CLAIMS, cases.claim(), "default")
        status = {"status": {"allocation": cases.allocation(cases.result(adminAccess=True))}}
        path = "status.allocation.devices.results[0].adminAccess"
        written = store.patch(RESOURCE_CLAIMS, "x", status, "default", subresource="status")
        assert await refusal(written) == f'ResourceClaim.resource.k8s.io "x" is invalid: {path}: {LABEL_NEEDED}'
        await store.create(NAMESPACES, {"metadata": {"name": "admins", "labels": {ADMIN_NAMESPACE_LABEL: "true"}}})
        for resource, document in ((RESOURCE_CLAIMS, claim), (RESOURCE_CLAIM_TEMPLATES, template)):
            await store.create(resource, named("x", document), "admins")
        await store.patch(RESOURCE_CLAIMS, "x", status, "admins", subresource="status")

    with_store(scenario)


async def grant(store: Store, user: User, resources: list[str], verbs: list[str]) -> None:
    rules = [{"apiGroups": ["resource.k8s.io"], "resources": resources, "verbs": verbs}]
    name = f"r{store.version}"
    await store.create(CLUSTER_ROLES, {"metadata": {"name": name}, "rules": rules})
    subject = {"kind": "User", "name": user.name, "apiGroup": "rbac.authorization.k8s.io"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    await store.create(CLUSTER_ROLE_BINDINGS, {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})


def test_an_allocation_needs_the_permission_to_bind() -> None:
    async def scenario(store: Store) -> None:
        await store.create(RESOURCE_CLAIMS, cases.claim(), "default")
        alice = LocalClient(store, ALICE)
        status = {"status": {"allocation": cases.allocation()}}
        for verb in ("update", "patch"):
            write = (
                alice.update(RESOURCE_CLAIMS, {**cases.claim(), **status}, "default", subresource="status")
                if verb == "update"
                else alice.patch(RESOURCE_CLAIMS, "x", status, "default", subresource="status")
            )
            assert await refusal(write) == (
                'ResourceClaim.resource.k8s.io "x" is invalid: status.allocation: Forbidden: changing status.allocation or '
                f'status.reservedFor requires resource="resourceclaims/binding", verb="{verb}" permission: '
                f'resourceclaims.resource.k8s.io is forbidden: User "alice" cannot {verb} resource "resourceclaims/binding" '
                'in API group "resource.k8s.io" at the cluster scope'
            )
        await grant(store, ALICE, ["resourceclaims/binding"], ["patch"])
        await alice.patch(RESOURCE_CLAIMS, "x", status, "default", subresource="status")

    with_store(scenario)


def test_the_status_of_devices_needs_a_permission_for_the_driver() -> None:
    node = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}

    async def scenario(store: Store) -> None:
        await store.create(RESOURCE_CLAIMS, cases.claim(), "default")
        status = {"status": {"allocation": {**cases.allocation(), "nodeSelector": node}}}
        await LocalClient(store, SYSTEM).patch(RESOURCE_CLAIMS, "x", status, "default", subresource="status")
        alice, devices = LocalClient(store, ALICE), {"status": {"devices": [DEVICE]}}
        assert await refusal(alice.patch(RESOURCE_CLAIMS, "x", devices, "default", subresource="status")) == (
            'ResourceClaim.resource.k8s.io "x" is invalid: status.devices: Forbidden: changing status.devices requires '
            'resource="resourceclaims/driver", verb="[arbitrary-node:patch]" permission: resourceclaims.resource.k8s.io '
            f'"{cases.DRIVER}" is forbidden: User "alice" cannot arbitrary-node:patch resource "resourceclaims/driver" in '
            'API group "resource.k8s.io" in the namespace "default"'
        )
        account = service_account("default", "driver")
        await grant(store, account, ["resourceclaims/driver"], ["associated-node:patch"])
        elsewhere = User(account.name, account.groups, extra={"authentication.kubernetes.io/node-name": ("n2",)})
        here = User(account.name, account.groups, extra={"authentication.kubernetes.io/node-name": ("n1",)})
        with pytest.raises(ApiError):
            await LocalClient(store, elsewhere).patch(RESOURCE_CLAIMS, "x", devices, "default", subresource="status")
        await LocalClient(store, here).patch(RESOURCE_CLAIMS, "x", devices, "default", subresource="status")

    with_store(scenario)


def test_taints_get_the_time_at_which_they_were_added() -> None:
    async def scenario(store: Store) -> None:
        taint = {"key": "a", "effect": "NoExecute"}
        given = {**taint, "timeAdded": "2020-01-01T00:00:00Z"}
        slice = cases.slice_of(cases.device(taints=[taint, given]))
        made = (await store.create(RESOURCE_SLICES, slice)).document
        assert [each["timeAdded"] for each in made["spec"]["devices"][0]["taints"]] == [
            "2027-01-15T08:00:00Z",
            "2020-01-01T00:00:00Z",
        ]
        more = {"spec": {"devices": [{"name": "gpu-0", "taints": [{"key": "b", "effect": "None"}]}]}}
        made = (await store.patch(RESOURCE_SLICES, "x", more, type=PatchType.MERGE)).document
        assert made["spec"]["devices"][0]["taints"][0]["timeAdded"] == "2027-01-15T08:00:00Z"
        assert made["metadata"]["generation"] == 2

    with_store(scenario)


HARD = {
    "gpu.deviceclass.resource.k8s.io/devices": "3",
    "count/resourceclaims.resource.k8s.io": "2",
    "requests.example.com/gpu": "4",
    "requests.deviceclass.resource.kubernetes.io/gpu": "3",
}


def asking(resource: str, amount: str) -> Document:
    resources = {"requests": {resource: amount}, "limits": {resource: amount}}
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}}


def test_quota_by_device_class() -> None:
    async def scenario(store: Store) -> None:
        await store.create(RESOURCE_QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": HARD}}, "default")
        await store.create(DEVICE_CLASSES, named("gpu", cases.device_class(extendedResourceName="example.com/gpu")))

        def claim(name: str, **exactly: Any) -> Coroutine[Any, Any, Any]:
            return store.create(RESOURCE_CLAIMS, named(name, cases.claim(cases.exactly(**exactly))), "default")

        await claim("x")
        amounts = "gpu.deviceclass.resource.k8s.io/devices={0},requests.deviceclass.resource.kubernetes.io/gpu={0}"
        assert await refusal(claim("y", count=3)) == (
            'resourceclaims.resource.k8s.io "y" is forbidden: exceeded quota: q, requested: '
            f"{amounts.format(3)}, used: {amounts.format(1)}, limited: {amounts.format(3)}"
        )
        assert "requested: gpu.deviceclass.resource.k8s.io/devices=32" in await refusal(
            claim("y", allocationMode="All")
        )
        await claim("y", count=2)
        count = "count/resourceclaims.resource.k8s.io"
        assert await refusal(claim("z", deviceClassName="other")) == (
            f'resourceclaims.resource.k8s.io "z" is forbidden: exceeded quota: q, requested: {count}=1, used: {count}=2, '
            f"limited: {count}=2"
        )
        implicit = "deviceclass.resource.kubernetes.io/gpu"
        assert await refusal(store.create(PODS, asking(implicit, "2"), "default")) == (
            f'pods "p" is forbidden: exceeded quota: q, requested: requests.{implicit}=2, used: requests.{implicit}=3, '
            f"limited: requests.{implicit}=3"
        )
        assert "used: requests.example.com/gpu=3" in await refusal(
            store.create(PODS, asking("example.com/gpu", "2"), "default")
        )
        await store.create(PODS, asking("example.com/gpu", "1"), "default")

    with_store(scenario)


def test_the_claim_for_extended_resources_is_not_charged_twice() -> None:
    async def scenario(store: Store) -> None:
        hard = {"requests.example.com/gpu": "2"}
        await store.create(RESOURCE_QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": hard}}, "default")
        await store.create(DEVICE_CLASSES, named("gpu", cases.device_class(extendedResourceName="example.com/gpu")))
        pod = (await store.create(PODS, asking("example.com/gpu", "2"), "default")).document
        claim = cases.claim(cases.exactly(count=2))
        assert "exceeded quota" in await refusal(store.create(RESOURCE_CLAIMS, claim, "default"))
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"], "controller": True}
        claim["metadata"] |= {"annotations": {EXTENDED_CLAIM: "true"}, "ownerReferences": [owner]}
        await store.create(RESOURCE_CLAIMS, claim, "default")
        second = {**claim, "metadata": {**claim["metadata"], "name": "y"}}
        assert "exceeded quota" in await refusal(store.create(RESOURCE_CLAIMS, second, "default"))

    with_store(scenario)


@pytest.mark.parametrize("resource", [RESOURCE_CLAIMS, RESOURCE_SLICES], ids=lambda resource: resource.plural)
def test_checks_of_claims_do_not_fail_on_malformed_documents(resource: Resource) -> None:
    async def scenario(store: Store) -> None:
        namespace = "default" if resource.namespaced else ""
        for spec in ([], {"devices": []}, {"devices": {"requests": [1]}}, {"devices": [{"taints": [None]}]}):
            assert "is invalid" in await refusal(
                store.create(resource, {"metadata": {"name": "x"}, "spec": spec}, namespace)
            )

    with_store(scenario)


@pytest.mark.parametrize("case", cases.EXPRESSIONS, ids=lambda case: case.name)
def test_expressions_are_checked(case: cases.RefusedObject) -> None:
    """Beyond `compilation failed:` the words are those of the CEL library."""

    async def scenario(store: Store) -> None:
        resource = RESOURCE_CLAIMS if case.document["kind"] == "ResourceClaim" else DEVICE_CLASSES
        namespace = "default" if resource.namespaced else ""
        said, mark = await refusal(store.create(resource, case.document, namespace)), "compilation failed:"
        assert said.partition(mark)[:2] == ANSWERS[case.name].partition(mark)[:2]

    with_store(scenario)


def test_stored_expressions_are_not_checked_again() -> None:
    async def scenario(store: Store) -> None:
        bad = cases.device_class(selectors=cases.cel("a b"))
        checking, store.chain.checking = store.chain.checking, []
        await store.create(DEVICE_CLASSES, bad)
        store.chain.checking = checking
        await store.patch(DEVICE_CLASSES, "x", {"metadata": {"labels": {"a": "b"}}})
        more = {"spec": {"selectors": [*cases.cel("a b"), *cases.cel("true")]}}
        assert "compilation failed" in await refusal(store.patch(DEVICE_CLASSES, "x", more))

    with_store(scenario)
