"""Other Python clients with the embedded server: the official one and kr8s."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from tests.apiserver.running import Api, pod
from tests.apiserver.test_access import until
from tests.support import require_module


def official(api: Api) -> Any:
    require_module("kubernetes")
    from kubernetes import client, config

    configuration = client.Configuration()
    config.load_kube_config(str(api.kubeconfig), client_configuration=configuration)
    return client.ApiClient(configuration)


def test_the_official_client_reads_writes_and_watches(api: Api, namespace: str) -> None:
    connection = official(api)
    from kubernetes import client, watch

    core, apps = client.CoreV1Api(connection), client.AppsV1Api(connection)
    seen: list[tuple[str, str]] = []

    def follow() -> None:
        for event in watch.Watch().stream(core.list_namespaced_pod, namespace, timeout_seconds=20):
            seen.append((event["type"], event["object"].metadata.name))
            if len(seen) == 2:
                return

    thread = threading.Thread(target=follow)
    thread.start()
    core.create_namespaced_pod(namespace, pod("a"))
    until(lambda: bool(seen))  # the list that a watch begins with shows only the last state of a pod
    core.patch_namespaced_pod("a", namespace, {"metadata": {"labels": {"x": "y"}}})
    thread.join(30)
    assert seen == [("ADDED", "a"), ("MODIFIED", "a")]
    assert [item.metadata.name for item in core.list_namespaced_pod(namespace, label_selector="x=y").items] == ["a"]

    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]}
    body = {
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template, "replicas": 1},
    }
    apps.create_namespaced_deployment(namespace, body)
    apps.patch_namespaced_deployment_scale("d", namespace, {"spec": {"replicas": 3}})
    assert apps.read_namespaced_deployment_scale("d", namespace).spec.replicas == 3
    binding = client.V1Binding(
        metadata=client.V1ObjectMeta(name="a"), target=client.V1ObjectReference(kind="Node", name="n")
    )
    core.create_namespaced_pod_binding("a", namespace, binding, _preload_content=False)
    assert core.read_namespaced_pod("a", namespace).spec.node_name == "n"
    core.delete_namespaced_pod("a", namespace, grace_period_seconds=0)
    try:
        core.read_namespaced_pod("a", namespace)
        raise AssertionError("the pod is still there")
    except client.ApiException as error:
        assert error.status == 404


def test_kr8s_reads_and_writes(api: Api, namespace: str) -> None:
    require_module("kr8s")
    import kr8s
    from kr8s.asyncio.objects import Deployment, Pod

    async def scenario() -> None:
        cluster = await kr8s.asyncio.api(kubeconfig=str(api.kubeconfig))
        one = await Pod({**pod("a"), "metadata": {"name": "a", "namespace": namespace}}, api=cluster)
        await one.create()
        await one.label({"x": "y"})
        found = [item.name async for item in cluster.get("pods", namespace=namespace, label_selector="x=y")]
        assert found == ["a"]
        template = {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]}
        spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template, "replicas": 1}
        body = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d", "namespace": namespace},
            "spec": spec,
        }
        deployment = await Deployment(body, api=cluster)
        await deployment.create()
        await deployment.scale(0)
        await deployment.refresh()
        assert deployment.replicas == 0
        await one.delete()
        assert not await one.exists()

    asyncio.run(scenario())
