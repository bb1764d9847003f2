"""`wharf bench webhook`: the latency of admission reviews at a steady rate, with warm and cold caches.

API server and webhook run in their own processes; the service account of the pods may use every policy, so each
review merges all of them.
"""

from __future__ import annotations

import asyncio
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wharfinger.bench.baseline import Results, baseline_options, show_result
from wharfinger.bench.commands.apiserver import Bench, Connection, running_server
from wharfinger.bench.support.load import steady
from wharfinger.cli.options import output_option

if TYPE_CHECKING:
    from wharfinger.client.http import HttpClient


@contextmanager
def running_webhook(kubeconfig: Path) -> Iterator[str]:
    """A webhook in its own process, on a free port; yields its URL."""
    command = [sys.executable, "-m", "wharfinger.cli.main", "webhook", "--kubeconfig", str(kubeconfig), "--enforce"]
    command += ["--url", "https://127.0.0.1:1", "--namespace", "default", "--bind", "127.0.0.1:0", "--no-register"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("webhooks on "):
                yield line.split()[2].rstrip(",")
                return
        raise click.ClickException("the webhook did not start")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


async def prepare(client: HttpClient, policies: int) -> None:
    from wharfinger.api.groups import SIGS
    from wharfinger.api.kinds.builtin import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
    from wharfinger.systems.scheduling_policy.kinds.names import SCHEDULING_POLICIES

    rbac = "rbac.authorization.k8s.io"
    for number in range(policies):
        name = f"bench-{number:03}"
        spec = {
            "allowed": {
                "schedulerNames": ["default-scheduler"],
                "nodeSelectors": {f"pool-{number}": ["a", "b"], "kubernetes.io/arch": ["amd64", "arm64"]},
                "tolerations": [{"keys": [f"pool-{number}"], "operators": ["Equal"], "effects": ["NoSchedule"]}],
            },
            "default": {"nodeSelector": {"kubernetes.io/arch": "amd64"}},
        }
        metadata = {"name": name}
        await client.create(
            SCHEDULING_POLICIES,
            {
                "apiVersion": SCHEDULING_POLICIES.api_version,
                "kind": "SchedulingPolicy",
                "metadata": metadata,
                "spec": spec,
            },
        )
        rule = {"apiGroups": [SIGS], "resources": ["schedulingpolicies"], "verbs": ["use"], "resourceNames": [name]}
        await client.create(
            CLUSTER_ROLES, {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": [rule]}
        )
        await client.create(
            CLUSTER_ROLE_BINDINGS,
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": metadata,
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
                "subjects": [{"apiGroup": rbac, "kind": "Group", "name": "system:serviceaccounts"}],
            },
        )


def review(number: int, account: str, *, default: bool = True) -> bytes:
    """A review as an API server sends it, with a pod of typical size."""
    import msgspec

    container = {
        "name": "main",
        "image": "registry.example/team/service:1.2.3",
        "env": [{"name": f"VARIABLE_{index}", "value": "value " * 5} for index in range(20)],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    spec = {
        "containers": [container],
        "serviceAccountName": account,
        "schedulerName": "default-scheduler",
        "tolerations": [
            {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for name in ("not-ready", "unreachable")
        ]
        + [{"key": "pool-7", "operator": "Equal", "value": "x", "effect": "NoSchedule"}],
        "nodeSelector": {"pool-7": "a", **({} if default else {"kubernetes.io/arch": "amd64"})},
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p-{number}", "namespace": "shop"}, "spec": spec}
    request = {
        "uid": f"uid-{number}",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": f"p-{number}",
        "namespace": "shop",
        "operation": "CREATE",
        "userInfo": {"username": "ann", "groups": ["system:authenticated"]},
        "object": pod,
        "dryRun": False,
    }
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def check(answer: bytes) -> None:
    if b'"allowed":true' not in answer or b"bench-000" not in answer:  # the audit entry names the policies used
        raise click.ClickException(f"a review was refused: {answer[-600:].decode(errors='replace')}")


async def ask(bench: Bench, connection: Connection, path: str, body: bytes) -> None:
    check(await connection.ask(bench.request("POST", path, body)))


async def edit(client: HttpClient, seconds: float) -> None:
    """Changes one policy, once a second."""
    from wharfinger.systems.scheduling_policy.kinds.names import SCHEDULING_POLICIES

    for number in range(int(seconds)):
        change = {"spec": {"allowed": {"priorityClasseNames": [f"class-{number}"]}}}
        await client.patch(SCHEDULING_POLICIES, "bench-000", change)
        await asyncio.sleep(1)


async def measure(
    kubeconfig: Path, url: str, policies: int, rate: float, seconds: float, connections: int
) -> dict[str, Any]:
    from base64 import b64decode

    from wharfinger.api.kinds.builtin import SECRETS
    from wharfinger.client.connect import connect

    client = connect(str(kubeconfig))
    secret = await client.get(SECRETS, "wharfinger-webhook", "default")
    context = ssl.create_default_context(cadata=b64decode(secret["data"]["ca.crt"]).decode())
    bench = Bench(url, "", context)
    try:
        pool = await bench.open(connections)
        for _ in range(100):
            if b" 200 " in (await pool[0].ask(bench.request("GET", "/readyz")))[:20]:
                break
            await asyncio.sleep(0.1)
        cold = []
        for number in range(5):
            started = time.perf_counter()
            await ask(bench, pool[0], "/mutate", review(number, f"fresh-{number}"))
            cold.append(time.perf_counter() - started)
        for number in range(200):
            await ask(bench, pool[number % len(pool)], "/mutate", review(number, "web"))
        # Half of the reviews are mutating and inject values; nothing else runs in this process.
        requests = [
            bench.request("POST", "/validate" if n % 2 else "/mutate", review(n, "web", default=n % 2 == 0))
            for n in range(100)
        ]
        load = partial(steady, bench.address, context, rate=rate, count=int(rate * seconds), connections=connections)
        warm = load(requests, check=check)
        changing, _ = await asyncio.gather(asyncio.to_thread(load, requests, check=check), edit(client, seconds))
        # The same load of trivial requests: the latency that the machine adds by itself.
        empty = load([bench.request("GET", "/healthz")], check=lambda answer: None)
        most = await bench.rate(
            pool, (bench.request("POST", "/validate", review(n, "web", default=False)) for n in range(3000))
        )
    finally:
        bench.close()
        await client.close()
    return {
        "policies": policies,
        "connections": connections,
        "requestsPerSecond": rate,
        "requests": len(warm),
        "warmMedianMs": _ms(warm[len(warm) // 2]),
        "warmP90Ms": _ms(warm[int(len(warm) * 0.9)]),
        "warmP99Ms": _ms(warm[int(len(warm) * 0.99)]),
        "warmMaxMs": _ms(warm[-1]),
        "changingP99Ms": _ms(changing[int(len(changing) * 0.99)]),
        "changingMaxMs": _ms(changing[-1]),
        "emptyMedianMs": _ms(empty[len(empty) // 2]),
        "emptyP99Ms": _ms(empty[int(len(empty) * 0.99)]),
        "mostRequestsPerSecond": round(most, 1),
        "coldMedianMs": _ms(sorted(cold)[len(cold) // 2]),
        "coldMaxMs": _ms(max(cold)),
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


@click.command
@click.option("--policies", default=200, show_default=True, help="Number of policies that each pod may use.")
@click.option("--rate", default=500.0, show_default=True, help="Reviews per second.")
@click.option("--seconds", default=10.0, show_default=True, help="Duration in seconds.")
@click.option("--connections", default=16, show_default=True, help="Number of connections.")
@output_option("text", "json", default="text")
@baseline_options
def command(policies: int, rate: float, seconds: float, connections: int, output: str) -> Results:
    """Measure the latency of admission reviews at a steady rate: warm, while a policy changes every second, and
    for an account seen for the first time.
    """
    import uvloop

    from wharfinger.client.connect import connect

    async def main() -> dict[str, Any]:
        client = connect(str(kubeconfig))
        try:
            await prepare(client, policies)
        finally:
            await client.close()
        with running_webhook(kubeconfig) as url:
            return await measure(kubeconfig, url, policies, rate, seconds, connections)

    with tempfile.TemporaryDirectory(prefix="wharf-bench-") as scratch, running_server(Path(scratch)) as kubeconfig:
        result = uvloop.run(main())
    show_result(result, output)
    return result
