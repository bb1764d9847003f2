"""What is shipped is there after a start, restored as autoupdate says; and the chain in process uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.systems.scheduling_policy.policies import allowing_all, grant, pod, policy

from wharfinger.admission.request import User
from wharfinger.admission.stored_rbac import StoredRbac
from wharfinger.api.errors import Forbidden, Invalid
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, EVENTS, NAMESPACES, PODS, ROLE_BINDINGS
from wharfinger.client.events import EventRecorder
from wharfinger.client.informer import InformerSet
from wharfinger.client.local import LocalClient
from wharfinger.client.timers import SystemClock
from wharfinger.controllers.context import ControllerContext
from wharfinger.store.store import Store
from wharfinger.systems.scheduling_policy.admission.stored import reviewers
from wharfinger.systems.scheduling_policy.controllers.scheduling_policy import SchedulingPolicyController, provision
from wharfinger.systems.scheduling_policy.kinds.names import SCHEDULING_POLICIES
from wharfinger.systems.scheduling_policy.rules.shipped import AUTOUPDATE, PRESETS, policies, preset, switches_on
from wharfinger.systems.scheduling_policy.settings import SchedulingPolicySettings

ANN = User("ann", ("system:authenticated",))


def run(check: Callable[[LocalClient], Awaitable[None]], settings: SchedulingPolicySettings | None = None) -> None:
    async def main() -> None:
        store = Store(registry())
        found = reviewers(store, StoredRbac(store).index, settings)
        store.chain.mutating += found.before_stock
        store.chain.validating += found.validating
        client = LocalClient(store)
        for name in ("default", "kube-system"):
            await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        await provision(client)
        await check(client)
        await store.close()

    asyncio.run(main())


def test_provisioning_is_complete_and_done_once() -> None:
    async def check(client: LocalClient) -> None:
        names = {item["metadata"]["name"] for item in (await client.list(SCHEDULING_POLICIES)).items}
        assert names == {"restricted", "privileged"}
        assert await provision(client) == []

    run(check)


@pytest.mark.parametrize("autoupdate", ["true", "false"])
def test_changes_are_restored_as_autoupdate_says(autoupdate: str) -> None:
    async def check(client: LocalClient) -> None:
        note = {"metadata": {"annotations": {AUTOUPDATE: autoupdate}}}
        await client.patch(CLUSTER_ROLES, "sp:restricted", {**note, "rules": []})
        await client.patch(CLUSTER_ROLE_BINDINGS, "sp:restricted", {**note, "subjects": []})
        await client.patch(SCHEDULING_POLICIES, "restricted", {**note, "spec": {"allowed": {"nodeSelectors": {}}}})
        await client.delete(ROLE_BINDINGS, "sp:kube-system-privileged", "kube-system")
        done = await provision(client)
        restored = ["restored ClusterRole sp:restricted", "restored ClusterRoleBinding sp:restricted"]
        created = ["created RoleBinding sp:kube-system-privileged"]
        policies = ["restored SchedulingPolicy restricted"]
        assert done == (restored + created + policies if autoupdate == "true" else created)

    run(check)


def test_a_binding_to_another_role_is_made_anew_and_extra_rules_stay() -> None:
    async def check(client: LocalClient) -> None:
        binding = await client.get(CLUSTER_ROLE_BINDINGS, "sp:restricted")
        await client.delete(CLUSTER_ROLE_BINDINGS, "sp:restricted")
        fresh = {key: binding[key] for key in ("apiVersion", "kind", "subjects")}
        await client.create(
            CLUSTER_ROLE_BINDINGS,
            {
                **fresh,
                "metadata": {"name": "sp:restricted"},
                "roleRef": {**binding["roleRef"], "name": "sp:privileged"},
            },
        )
        extra = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
        await client.patch(CLUSTER_ROLES, "sp:privileged", {"rules": [extra]})
        assert len(await provision(client)) == 2
        assert (await client.get(CLUSTER_ROLE_BINDINGS, "sp:restricted"))["roleRef"]["name"] == "sp:restricted"
        rules = (await client.get(CLUSTER_ROLES, "sp:privileged"))["rules"]
        assert extra in rules and len(rules) == 2

    run(check)


TOLERATING = {"tolerations": [{"key": "a", "operator": "Exists"}]}


def test_in_process_the_first_own_policy_switches_enforcement_on() -> None:
    async def check(client: LocalClient) -> None:
        ann = client.as_user(ANN)
        await ann.create(PODS, pod(TOLERATING, name="before"), "default")
        await client.create(SCHEDULING_POLICIES, policy("own", allowing_all()))
        with pytest.raises(Forbidden, match=r"spec.tolerations\[0\]"):
            await ann.create(PODS, pod(TOLERATING, name="after"), "default")
        for item, resource in zip(grant("own"), (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)):
            await client.create(resource, {**item, "apiVersion": "rbac.authorization.k8s.io/v1"})
        await ann.create(PODS, pod(TOLERATING, name="granted"), "default")
        await client.delete(CLUSTER_ROLE_BINDINGS, "sp:own")
        with pytest.raises(Forbidden):
            await ann.create(PODS, pod(TOLERATING, name="revoked"), "default")
        await client.patch(PODS, "before", {"metadata": {"labels": {"a": "b"}}}, "default")

    run(check)


def test_in_process_defaults_are_written_and_bindings_guarded() -> None:
    async def check(client: LocalClient) -> None:
        documents = preset("restricted-multiarch-by-node-selector", "default")
        for document, resource in zip(documents, (SCHEDULING_POLICIES, CLUSTER_ROLES, ROLE_BINDINGS), strict=True):
            await client.create(resource, document, document["metadata"].get("namespace", ""))
        made = await client.as_user(ANN).create(PODS, pod(), "default")
        assert made["spec"]["nodeSelector"] == {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
        target = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
        with pytest.raises(Forbidden, match="only schedulers may bind pods"):
            await client.as_user(ANN).create(PODS, target, "default", name="p", subresource="binding")
        scheduler = client.as_user(User("system:kube-scheduler"))
        await scheduler.create(PODS, target, "default", name="p", subresource="binding")

    run(check, SchedulingPolicySettings(mode="enforce"))


@pytest.mark.parametrize("name", list(PRESETS))
def test_an_upgrade_keeps_presets_and_switches_nothing_on(name: str) -> None:
    """Earlier versions provisioned them. Those that an administrator added since are an administrator's policies."""

    async def check(client: LocalClient) -> None:
        added, *_ = preset(name, "default")
        earlier = {**added, "metadata": {**policies()[0]["metadata"], "name": name}}
        assert switches_on(added) and not switches_on(earlier)
        await client.create(SCHEDULING_POLICIES, earlier)
        assert await provision(client) == []
        assert (await client.get(SCHEDULING_POLICIES, name))["spec"] == added["spec"]

    run(check)


def test_an_upgrade_adds_new_components_to_what_is_shipped() -> None:
    async def check(client: LocalClient) -> None:
        patch = {"spec": {"allowed": {"runtimeClassNames": None, "topologySpreadConstraints": None}}}
        earlier = await client.patch(SCHEDULING_POLICIES, "privileged", patch)
        assert not switches_on(earlier)  # it is as it was shipped
        assert await provision(client) == ["restored SchedulingPolicy privileged"]
        assert (await client.get(SCHEDULING_POLICIES, "privileged"))["spec"] == policies()[1]["spec"]

    run(check)


def test_an_invalid_policy_is_refused_with_hints() -> None:
    async def check(client: LocalClient) -> None:
        with pytest.raises(Invalid, match=r"spec.required.schedulerNames: Required value"):
            await client.create(SCHEDULING_POLICIES, policy("bad", {"required": {"schedulerNames": []}}))

    run(check)


def test_an_event_says_when_enforcement_starts() -> None:
    async def check(client: LocalClient) -> None:
        clock = SystemClock()
        recorder = EventRecorder(client, "controllers", clock)
        informers = InformerSet(client)
        controller = SchedulingPolicyController(ControllerContext(client, informers, recorder, registry()))
        informers.start()
        await informers.wait_synced()
        recorder.start()
        task = asyncio.create_task(controller.run())
        await asyncio.sleep(0.05)
        await client.create(SCHEDULING_POLICIES, policy("own", allowing_all()))
        found: list[Any] = []
        for _ in range(100):
            await asyncio.sleep(0.02)
            found = list((await client.list(EVENTS)).items)
            if found:
                break
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await recorder.stop()
        await informers.stop()
        assert [(event["reason"], event["involvedObject"]["name"]) for event in found] == [
            ("EnforcementStarted", "own")
        ]

    run(check)


def test_aggregated_roles_count_with_their_parts_as_those_come_and_go() -> None:
    def aggregating(name: str, selected: str, **labels: str) -> dict[str, Any]:
        rule = {"clusterRoleSelectors": [{"matchLabels": {"part-of": selected}}]}
        return {"metadata": {"name": name, "labels": labels}, "aggregationRule": rule}

    async def check(client: LocalClient) -> None:
        role, binding = grant("own", ("Group", "system:serviceaccounts"))
        await client.create(SCHEDULING_POLICIES, policy("own", allowing_all()))
        await client.create(CLUSTER_ROLES, aggregating(role["metadata"]["name"], "whole"))
        await client.create(CLUSTER_ROLES, aggregating("middle", "middle", **{"part-of": "whole"}))
        await client.create(CLUSTER_ROLE_BINDINGS, binding)
        part = {**role, "metadata": {"name": "part", "labels": {"part-of": "middle"}}}
        ann = client.as_user(ANN)
        for number in range(2):
            with pytest.raises(Forbidden):
                await ann.create(PODS, pod({"nodeName": "n1"}, name=f"refused-{number}"), "default")
            await client.create(CLUSTER_ROLES, part)
            await ann.create(PODS, pod({"nodeName": "n1"}, name=f"admitted-{number}"), "default")
            await client.delete(CLUSTER_ROLES, "part")

    run(check, SchedulingPolicySettings(mode="enforce"))
