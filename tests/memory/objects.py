"""Nodes and pods of the size that kubelets and controllers give them: about 4 KiB a node and 5 KiB a pod in JSON."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]
TIME = "2026-01-01T00:00:00Z"
NAMESPACES = 20
REPLICAS = 25  # pods of one ReplicaSet


def node(number: int) -> Document:
    name = f"node-{number:05}"
    amounts = {"cpu": "16", "memory": "65536000Ki", "pods": "110", "ephemeral-storage": "101430960Ki"}
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    conditions = [
        {
            "type": kind,
            "status": "True" if kind == "Ready" else "False",
            "reason": f"KubeletHas{kind}",
            "message": f"kubelet has reported {kind}",
            "lastHeartbeatTime": TIME,
            "lastTransitionTime": TIME,
        }
        for kind in kinds
    ]
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": "m5.4xlarge",
        "topology.kubernetes.io/region": "eu-central-1",
        "topology.kubernetes.io/zone": f"eu-central-1{'abc'[number % 3]}",
    }
    images = [
        {"names": [f"registry.example.com/team/app-{each}@sha256:{each:064x}"], "sizeBytes": 10**8}
        for each in range(15)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"node.alpha.kubernetes.io/ttl": "0"}},
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": f"aws:///eu-central-1a/i-{number:017x}"},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": f"10.{number // 65536}.{number // 256 % 256}.{number % 256}"}
            ],
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": conditions,
            "images": images,
            "nodeInfo": {
                "kubeletVersion": "v1.37.1",
                "osImage": "Debian GNU/Linux 13 (trixie)",
                "architecture": "amd64",
            },
        },
    }


def pod(number: int, nodes: int) -> Document:
    """A running one of a Deployment."""
    application = f"app-{number // REPLICAS:05}"
    node_number = number % nodes
    probe = {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10, "timeoutSeconds": 1}
    resources = {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}}
    access = f"kube-api-access-{number:05x}"
    container = {
        "name": "app",
        "image": f"registry.example.com/team/{application}:1.2.3",
        "imagePullPolicy": "IfNotPresent",
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [{"name": f"SETTING_{each}", "value": f"value of setting {each}"} for each in range(10)],
        "resources": resources,
        "livenessProbe": probe,
        "readinessProbe": probe,
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/app", "readOnly": True},
            {"name": access, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True},
        ],
    }
    labels = {"app.kubernetes.io/name": application, "pod-template-hash": "5c689d88bb", "team": f"team-{number % 9}"}
    token = {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{application}-5c689d88bb-{number:05x}",
            "namespace": namespace(number),
            "labels": labels,
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"{application}-5c689d88bb",
                    "uid": f"00000000-0000-4000-8000-{number // REPLICAS:012x}",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": _managers(labels),
        },
        "spec": {
            "nodeName": f"node-{node_number:05}",
            "serviceAccountName": "default",
            "schedulerName": "wharfinger",
            "containers": [container],
            "volumes": [
                {"name": "config", "configMap": {"name": application}},
                {"name": access, "projected": {"sources": [token, {"configMap": {"name": "kube-root-ca.crt"}}]}},
            ],
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{key}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for key in ("not-ready", "unreachable")
            ],
        },
        "status": _status(number, container["image"]),
    }


def namespace(number: int) -> str:
    return f"team-{number // REPLICAS % NAMESPACES}"


def _status(number: int, image: object) -> Document:
    address = f"10.{100 + number // 65536}.{number // 256 % 256}.{number % 256}"
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "hostIP": "10.0.0.1",
        "startTime": TIME,
        "qosClass": "Burstable",
        "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": TIME} for kind in kinds
        ],
        "containerStatuses": [
            {
                "name": "app",
                "image": image,
                "imageID": f"{image}@sha256:{number:064x}",
                "containerID": f"containerd://{number:064x}",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": TIME}},
            }
        ],
    }


def _managers(labels: Document) -> list[Document]:
    named = {f"f:{key}": {} for key in labels}
    container = {
        "f:env": {f'k:{{"name":"SETTING_{each}"}}': {".": {}, "f:name": {}, "f:value": {}} for each in range(10)}
    }
    return [
        {
            "manager": "kube-controller-manager",
            "operation": "Update",
            "apiVersion": "v1",
            "time": TIME,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": named},
                "f:spec": {"f:containers": {'k:{"name":"app"}': container}},
            },
        },
        {
            "manager": "kubelet",
            "operation": "Update",
            "apiVersion": "v1",
            "subresource": "status",
            "time": TIME,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:status": {"f:conditions": {}, "f:containerStatuses": {}, "f:phase": {}, "f:podIP": {}}},
        },
    ]
