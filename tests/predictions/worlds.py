"""Random worlds: nodes of different sizes, and workloads of every kind that ask for them in different ways. Pure: the
same seed gives the same world."""

from __future__ import annotations

from random import Random
from typing import Any

Document = dict[str, Any]

ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
ZONES = ("east", "west", "north")
POOLS = ("blue", "green")
SPACES = ("shop", "batch")
DEVICE = "example.com/device"
DEDICATED = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}
RUN_FOR, STARTS = "wharfinger.dev/run-for", "wharfinger.dev/start-after"
APPS = ("web", "cart", "search", "ledger", "mail", "queue", "render", "index", "agent", "report", "cache", "feed")


def base(random: Random) -> list[Document]:
    """What is there before any workload: namespaces, priority classes, nodes, and perhaps quotas."""
    made: list[Document] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": name}}}
        for name in SPACES
    ]
    for name, value in (("last", -1000), ("low", 10), ("normal", 100), ("high", 1000)):
        made.append(_priority_class(name, value))
    made.append(_priority_class("polite", 1000) | {"preemptionPolicy": "Never"})
    made += [node(random, number) for number in range(1, random.randint(4, 8) + 1)]
    if random.random() < 0.3:
        limits = {"type": "Container", "defaultRequest": {"cpu": "150m"}, "default": {"cpu": "2"}}
        made.append(_object("v1", "LimitRange", "shop", "defaults", spec={"limits": [limits]}))
    if random.random() < 0.5:
        hard: Document = {"requests.cpu": str(random.randint(4, 8)), "pods": str(random.randint(8, 14))}
        made.append(_object("v1", "ResourceQuota", "batch", "limit", spec={"hard": hard}))
    return made


def node(random: Random, number: int) -> Document:
    name = f"n{number}"
    cpu = random.choice((1, 2, 2, 4))
    amounts = {
        "cpu": str(cpu),
        "memory": f"{cpu * random.choice((1, 2, 4))}Gi",
        "pods": str(random.choice((7, 20, 110, 110))),
    }
    if random.random() < 0.3:
        amounts[DEVICE] = str(random.randint(1, 4))
    labels = {HOSTNAME: name, ZONE: random.choice(ZONES), "pool": random.choice(POOLS)}
    spec = {"taints": [DEDICATED]} if random.random() < 0.15 else {}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def _priority_class(name: str, value: int) -> Document:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def _object(version: str, kind: str, namespace: str, name: str, **parts: Any) -> Document:
    return {"apiVersion": version, "kind": kind, "metadata": {"namespace": namespace, "name": name}, **parts}


# Workloads


def workload(random: Random, name: str, *, priority: str | None = None) -> list[Document]:
    """A workload, and perhaps a disruption budget for it."""
    kind = random.choices(("Deployment", "StatefulSet", "DaemonSet", "Job", "Pod"), (6, 3, 1, 2, 1))[0]
    # Under a quota, which nodes get no pod of a DaemonSet would depend on the order of a map.
    space = random.choice(SPACES) if kind != "DaemonSet" else "shop"
    spec = pod_spec(random, name, spread=kind != "DaemonSet")
    if priority is not None:
        spec["priorityClassName"] = priority
    made = {"Deployment": deployment, "StatefulSet": stateful_set, "DaemonSet": daemon_set, "Job": job, "Pod": pod}
    documents = [made[kind](random, space, name, spec)]
    if kind in ("Deployment", "StatefulSet") and random.random() < 0.5:
        documents.append(budget(random, space, name))
    return documents


def deployment(random: Random, space: str, name: str, spec: Document) -> Document:
    surge, unavailable = random.choice(((1, 0), ("25%", "25%"), (0, 1), (2, 1), ("50%", 0)))
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    strategy = {"type": "Recreate"} if random.random() < 0.15 else rolling
    rest = {"replicas": random.randint(1, 8), "strategy": strategy, **_template(name, spec)}
    if random.random() < 0.15:
        rest["minReadySeconds"] = 1
    return _object("apps/v1", "Deployment", space, name, spec=rest)


def stateful_set(random: Random, space: str, name: str, spec: Document) -> Document:
    rest = {
        "replicas": random.randint(1, 4),
        "serviceName": name,
        "podManagementPolicy": random.choice(("OrderedReady", "Parallel")),
        **_template(name, spec),
    }
    if random.random() < 0.2:
        rest["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"partition": random.randint(1, 2)}}
    if random.random() < 0.2:
        rest["ordinals"] = {"start": 3}
    return _object("apps/v1", "StatefulSet", space, name, spec=rest)


def daemon_set(random: Random, space: str, name: str, spec: Document) -> Document:
    spec["containers"][0]["resources"]["requests"] = {"cpu": random.choice(("50m", "100m", "200m"))}
    unavailable = random.choice((1, 2, "50%"))
    strategy: Document = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": unavailable}}
    if random.random() < 0.3:
        strategy["rollingUpdate"] = {"maxUnavailable": 0, "maxSurge": 1}
    return _object("apps/v1", "DaemonSet", space, name, spec={"updateStrategy": strategy, **_template(name, spec)})


def job(random: Random, space: str, name: str, spec: Document) -> Document:
    spec["restartPolicy"] = "Never"
    parallelism = random.randint(1, 4)
    rest: Document = {"parallelism": parallelism, "backoffLimit": 0, "template": _template(name, spec)["template"]}
    if random.random() < 0.5:
        rest["completions"] = parallelism + random.randint(0, 2)
        rest["completionMode"] = random.choice(("Indexed", "NonIndexed"))
    if random.random() < 0.4:
        rest["template"]["metadata"]["annotations"] = {RUN_FOR: "2s"}
    return _object("batch/v1", "Job", space, name, spec=rest)


def pod(random: Random, space: str, name: str, spec: Document) -> Document:
    made = _object("v1", "Pod", space, name, spec=spec)
    made["metadata"]["labels"] = {"app": name}
    return made


def budget(random: Random, space: str, name: str) -> Document:
    field, values = random.choice((("minAvailable", (1, 2, "50%", "100%")), ("maxUnavailable", (1, "30%", 0))))
    rest = {"selector": {"matchLabels": {"app": name}}, field: random.choice(values)}
    return _object("policy/v1", "PodDisruptionBudget", space, name, spec=rest)


def _template(name: str, spec: Document) -> Document:
    labels = {"app": name}
    return {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}


# Pods


def requests(random: Random) -> Document:
    found = {"cpu": random.choice(("100m", "250m", "300m", "500m", "700m", "1", "1500m"))}
    if random.random() < 0.6:
        found["memory"] = random.choice(("64Mi", "128Mi", "256Mi", "512Mi", "1Gi", "2Gi"))
    return found


def pod_spec(random: Random, name: str, *, spread: bool = True) -> Document:
    container: Document = {
        "name": "main",
        "image": f"example.com/{name}:1",
        "resources": {"requests": requests(random)},
    }
    spec: Document = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    if random.random() < 0.25:
        spec["terminationGracePeriodSeconds"] = 30  # simulated kubelets stop them sooner
    if random.random() < 0.08:
        container["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    if random.random() < 0.08:
        container["resources"]["limits"] = {DEVICE: "1"}
    if random.random() < 0.1:
        init = {"name": "init", "image": "example.com/init", "resources": {"requests": requests(random)}}
        spec["initContainers"] = [init]
    if random.random() < 0.1:
        del container["resources"]["requests"]
    if random.random() < 0.05:
        spec["schedulingGates"] = [{"name": "example.com/approval"}]
    if random.random() < 0.5:
        spec["priorityClassName"] = random.choice(("low", "normal"))
    if random.random() < 0.3:
        spec["tolerations"] = [{"key": "dedicated", "operator": random.choice(("Exists", "Exists"))}]
    if random.random() < 0.1:
        spec["nodeSelector"] = {"pool": random.choice(POOLS)}
    affinity: Document = {}
    if random.random() < 0.25:
        affinity["nodeAffinity"] = _node_affinity(random)
    if spread and random.random() < 0.35:
        affinity.update(_pod_affinity(random, name))
    if affinity:
        spec["affinity"] = affinity
    if spread and random.random() < 0.35:
        spec["topologySpreadConstraints"] = [_spread(random, name) for _ in range(random.randint(1, 2))]
        keys = [(each["topologyKey"], each["whenUnsatisfiable"]) for each in spec["topologySpreadConstraints"]]
        if len(set(keys)) < len(keys):
            spec["topologySpreadConstraints"].pop()
    return spec


def _node_affinity(random: Random) -> Document:
    key, values = random.choice((("pool", POOLS), (ZONE, ZONES)))
    chosen = random.sample(values, random.randint(1, len(values) - 1))
    terms = [{"key": key, "operator": random.choice(("In", "In", "NotIn")), "values": chosen}]
    if random.random() < 0.5:
        return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": terms}]}}
    weighted = {"weight": random.choice((1, 10, 50, 100)), "preference": {"matchExpressions": terms}}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}


def _pod_affinity(random: Random, name: str) -> Document:
    anti = random.random() < 0.65
    target = name if anti or random.random() < 0.5 else random.choice(APPS)
    term: Document = {
        "labelSelector": {"matchLabels": {"app": target}},
        "topologyKey": random.choice((HOSTNAME, ZONE)),
    }
    if random.random() < 0.2:
        term["namespaceSelector"] = {"matchLabels": {"team": random.choice(SPACES)}}
    if random.random() < 0.5:
        rule: Document = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    else:
        weighted = {"weight": random.choice((1, 50, 100)), "podAffinityTerm": term}
        rule = {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}
    return {"podAntiAffinity" if anti else "podAffinity": rule}


def _spread(random: Random, name: str) -> Document:
    made: Document = {
        "maxSkew": random.randint(1, 2),
        "topologyKey": random.choice((HOSTNAME, ZONE)),
        "whenUnsatisfiable": random.choice(("DoNotSchedule", "ScheduleAnyway")),
        "labelSelector": {"matchLabels": {"app": name}},
    }
    if random.random() < 0.2:
        made["nodeTaintsPolicy"] = "Honor"
    if random.random() < 0.2:
        made["matchLabelKeys"] = ["pod-template-hash"]
    if random.random() < 0.2 and made["whenUnsatisfiable"] == "DoNotSchedule":
        made["minDomains"] = random.randint(2, 3)
    return made
