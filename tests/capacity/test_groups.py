"""Node groups from labels of nodes, from objects of other projects, and from the configuration of cluster-autoscaler."""

from __future__ import annotations

from typing import Any

import pytest
from tests.repack.worlds import node

from wharfinger.api.node_groups import read_group
from wharfinger.capacity.foreign_faults import CAPACITY, SIZE, foreign_faults
from wharfinger.capacity.groups import CapacityGroup, KnownNodes, found_groups, from_node_group, group_of, priced
from wharfinger.capacity.prices import PriceTable, read_prices
from wharfinger.capacity.sources import BadForeignObject, described_groups, limit_by_autoscaler

Document = dict[str, Any]
TYPE, ZONE = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"
PRICES = read_prices(
    "p.yaml",
    """
- {type: m5.large, price: 0.1, cpu: 2, memory: 8Gi}
- {type: m5.xlarge, price: 0.2, cpu: 4, memory: 16Gi}
- {type: m5.xlarge, capacityType: spot, price: 0.06, cpu: 4, memory: 16Gi}
- {type: c6g.xlarge, price: 0.15, cpu: 4, memory: 8Gi}
""",
)


def labelled(name: str, labels: dict[str, str], **annotations: str) -> Document:
    made = node(name, 4000, 16000)
    made["metadata"]["labels"] = labels
    made["metadata"]["annotations"] = annotations
    return made


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"wharfinger.dev/node-group": "g", "agentpool": "x"}, ("g", "NodeGroup")),
        ({"eks.amazonaws.com/nodegroup": "g"}, ("g", "EKS")),
        ({"alpha.eksctl.io/nodegroup-name": "g"}, ("g", "eksctl")),
        ({"cloud.google.com/gke-nodepool": "g"}, ("g", "GKE")),
        ({"kubernetes.azure.com/agentpool": "g"}, ("g", "AKS")),
        ({"karpenter.sh/nodepool": "g"}, ("g", "Karpenter")),
        ({"cluster.x-k8s.io/deployment-name": "g"}, ("g", "Cluster API")),
        ({"kops.k8s.io/instancegroup": "g"}, ("g", "kOps")),
        ({}, ("", "")),
    ],
)
def test_labels_name_the_group(labels: dict[str, str], expected: tuple[str, str]) -> None:
    assert group_of(labelled("n", labels)) == expected


def test_cluster_api_names_the_machine_set_of_a_node() -> None:
    made = labelled("n", {}, **{"cluster.x-k8s.io/owner-name": "md-0-7d9f8"})
    assert group_of(made) == ("md-0-7d9f8", "Cluster API")
    assert group_of(made, ["md", "md-0"]) == ("md-0", "Cluster API")


def test_each_type_and_zone_of_a_group_has_a_model_like_its_nodes() -> None:
    objects = []
    for index, (instance_type, zone) in enumerate((("m5.large", "a"), ("m5.large", "b"), ("m5.xlarge", "a"))):
        made = labelled(f"n{index}", {"eks.amazonaws.com/nodegroup": "g", TYPE: instance_type, ZONE: zone, "own": "x"})
        made["spec"] = {
            "unschedulable": True,
            "providerID": "aws://x",
            "taints": [
                {"key": "team", "value": "a", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
            ],
        }
        objects.append(made)
    (group,) = found_groups(KnownNodes(objects), ())
    assert [model.title for model in group.models] == ["m5.large a", "m5.large b", "m5.xlarge a"]
    (made,) = group.models[0].named("new")
    assert made["metadata"] == {
        "name": "new",
        "labels": {
            "eks.amazonaws.com/nodegroup": "g",
            TYPE: "m5.large",
            ZONE: "a",
            "own": "x",
            "kubernetes.io/hostname": "new",
        },
    }
    assert made["spec"] == {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}
    assert "uid" not in made["metadata"] and "conditions" not in made["status"]


def test_objects_beside_a_node_are_copied_with_it() -> None:
    first = labelled("n1", {"karpenter.sh/nodepool": "g"})
    pool = {"name": "n1", "generation": 4, "resourceSliceCount": 1}
    piece = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "n1-gpu-x7", "uid": "u", "generateName": "n1-"},
        "spec": {"driver": "gpu.example.com", "nodeName": "n1", "pool": pool, "devices": [{"name": "gpu-0"}]},
    }
    csi = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n1"}, "spec": {"drivers": []}}
    (group,) = found_groups(KnownNodes([first, piece, csi]), ())
    _, copied, csi_copy = group.models[0].named("new")
    assert copied["metadata"] == {"name": "new-n1-gpu-x7"}
    assert copied["spec"]["nodeName"] == "new" and copied["spec"]["pool"]["name"] == "new-n1"
    assert piece["spec"]["pool"]["name"] == "n1", "the original stays as it is"  # type: ignore[index]
    assert csi_copy["metadata"] == {"name": "new"}


def node_pool(*requirements: tuple[str, str, list[str]], **spec: Any) -> Document:
    listed = [{"key": key, "operator": operator, "values": values} for key, operator, values in requirements]
    inner = {"requirements": listed, "taints": [{"key": "t", "effect": "NoSchedule"}], "startupTaints": [{"key": "s"}]}
    template = {"metadata": {"labels": {"team": "a"}}, "spec": inner}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "pool"},
        "spec": {"template": template, **spec},
    }


def models(document: Document, *nodes: Document, prices: PriceTable = PRICES) -> list[str]:
    known = KnownNodes(nodes)
    groups = found_groups(known, described_groups([document], known, prices))
    priced(groups, known, prices)
    return [f"{model.title} {model.price}" for model in groups[0].models]


def test_a_node_pool_has_a_model_for_each_type_zone_and_capacity_type() -> None:
    pool = node_pool(
        (TYPE, "In", ["m5.xlarge", "unknown"]), (ZONE, "In", ["a", "b"]), ("karpenter.sh/capacity-type", "In", ["spot"])
    )
    assert models(pool) == ["m5.xlarge a spot 0.06", "m5.xlarge b spot 0.06"]
    known = KnownNodes(())
    (group,) = described_groups([pool], known, PRICES)
    (made,) = group.models[0].named("new")
    assert made["metadata"]["labels"]["team"] == "a" and made["metadata"]["labels"]["karpenter.sh/nodepool"] == "pool"
    assert made["spec"]["taints"] == [{"key": "t", "effect": "NoSchedule"}], "start-up taints are gone once it runs"


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        (("karpenter.k8s.aws/instance-family", "In", ["m5"]), ["m5.large", "m5.xlarge"]),
        (("karpenter.k8s.aws/instance-category", "NotIn", ["m"]), ["c6g.xlarge"]),
        (("karpenter.k8s.aws/instance-cpu", "Gt", ["3"]), ["c6g.xlarge", "m5.xlarge"]),
        (("karpenter.k8s.aws/instance-generation", "Lt", ["6"]), ["m5.large", "m5.xlarge"]),
        ((TYPE, "NotIn", ["m5.large"]), ["c6g.xlarge", "m5.xlarge"]),
        (("example.com/unknown", "Exists", []), ["c6g.xlarge", "m5.large", "m5.xlarge"]),
    ],
)
def test_requirements_of_a_node_pool_choose_among_the_types_of_the_table(
    requirement: tuple[str, str, list[str]], expected: list[str]
) -> None:
    assert [each.split()[0] for each in models(node_pool(requirement))] == expected


def test_limits_and_weights_of_node_pools() -> None:
    light, heavy = node_pool(limits={"cpu": "10", "nodes": "2"}), node_pool(weight=7)
    heavy["metadata"] = {"name": "heavy"}
    known = KnownNodes(())
    groups = found_groups(known, described_groups([light, heavy], known, PRICES))
    assert [group.name for group in groups] == ["heavy", "pool"]
    assert groups[1].limits == {"cpu": 10 * 10**9, "nodes": 2 * 10**9}


def test_a_broken_node_pool_is_refused_by_name() -> None:
    with pytest.raises(BadForeignObject, match="pool cannot be read"):
        described_groups([node_pool(limits={"cpu": "lots"})], KnownNodes(()), None)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"weight": "heavy"}, 'spec.weight: Invalid value: "heavy": must be a whole number'),
        ({"replicas": -1}, "spec.replicas: Invalid value: -1: must be a whole number"),
        ({"limits": {"cpu": "lots"}}, 'spec.limits.cpu: Invalid value: "lots": must be a quantity'),
        ({"limits": ["cpu"]}, 'spec.limits: Invalid value: ["cpu"]: must be an object'),
        ({"requirements": "x"}, 'requirements: Invalid value: "x": must be a list'),
        ({"requirements": ["x"]}, 'requirements[0]: Invalid value: "x": must be an object'),
        ({"requirements": [{"key": "k", "operator": "Inn"}]}, 'requirements[0].operator: Unsupported value: "Inn"'),
        ({"requirements": [{"operator": "Exists"}]}, "requirements[0].key: Required value"),
        ({"requirements": [{"key": "k", "operator": "In"}]}, "requirements[0].values: Required value"),
        ({"requirements": [{"key": "k", "operator": "In", "values": [1]}]}, "must be a list of strings"),
        ({"requirements": [{"key": "k", "operator": "Gt", "values": ["x"]}]}, "operator Gt needs one whole number"),
        ({"taints": [{"key": "k"}]}, "taints[0].effect: Unsupported value: null"),
        ({"taints": [{"effect": "NoSchedule"}]}, "taints[0].key: Required value"),
    ],
)
def test_what_is_wrong_with_a_node_pool_is_told_with_its_field(spec: Document, message: str) -> None:
    pool = node_pool()
    for name, value in spec.items():
        part = pool["spec"]["template"]["spec"] if name in ("requirements", "taints") else pool["spec"]
        part[name] = value
    assert message in "; ".join(map(str, foreign_faults(pool)))
    with pytest.raises(BadForeignObject):
        described_groups([pool], KnownNodes(()), None)


@pytest.mark.parametrize(
    ("spec", "annotations", "message"),
    [
        ({"replicas": "three"}, {}, 'spec.replicas: Invalid value: "three"'),
        ({}, {f"{SIZE}max-size": "many"}, 'max-size: Invalid value: "many": must be a whole number'),
        ({}, {f"{CAPACITY}memory": "much"}, 'memory: Invalid value: "much": must be a quantity'),
        ({}, {f"{CAPACITY}taints": "gpu=yes"}, 'taints: Invalid value: "gpu=yes": must have the form key=value:Effect'),
    ],
)
def test_what_is_wrong_with_a_machine_deployment_is_told_with_its_field(
    spec: Document, annotations: Document, message: str
) -> None:
    metadata = {"name": "md-0", "annotations": annotations}
    document = {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachineDeployment",
        "metadata": metadata,
        "spec": spec,
    }
    (fault,) = foreign_faults(document)
    assert message in str(fault)


def test_machine_deployments_scale_from_zero_by_their_annotations() -> None:
    size, room = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-", "capacity.cluster-autoscaler.kubernetes.io/"
    annotations = {
        f"{size}max-size": "5",
        f"{room}cpu": "8",
        f"{room}memory": "32Gi",
        f"{room}gpu-type": "nvidia.com/gpu",
        f"{room}gpu-count": "2",
        f"{room}maxPods": "58",
        f"{room}labels": "kind=gpu,disk=ssd",
        f"{room}taints": "gpu=yes:NoSchedule",
    }
    document = {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachineDeployment",
        "metadata": {"name": "md-0", "namespace": "x", "annotations": annotations},
        "spec": {"replicas": 1},
    }
    (group,) = described_groups([document], KnownNodes(()), None)
    assert (group.max_size, group.target_size, group.coming) == (5, 1, 1)
    (made,) = group.models[0].named("new")
    assert made["status"]["allocatable"] == {"cpu": "8", "memory": "32Gi", "pods": "58", "nvidia.com/gpu": "2"}
    assert made["metadata"]["labels"]["disk"] == "ssd"
    assert made["spec"]["taints"] == [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]


def autoscaler(*arguments: str) -> Document:
    container = {"name": "c", "image": "registry.k8s.io/autoscaling/cluster-autoscaler:v1.36.0", "command": arguments}
    return {
        "kind": "Deployment",
        "metadata": {"name": "ca"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


def test_sizes_that_cluster_autoscaler_is_told() -> None:
    groups = [CapacityGroup("pool-1", "GKE"), CapacityGroup("workers", "EKS"), CapacityGroup("other", "EKS")]
    limit_by_autoscaler(
        groups,
        [
            autoscaler(
                "./cluster-autoscaler",
                "--nodes=1:10:eks-workers-3ac51",
                "--nodes=0:4:https://x/zones/a/instanceGroups/gke-c-pool-1-aa-grp",
                "--nodes=0:4:https://x/zones/b/instanceGroups/gke-c-pool-1-bb-grp",
            )
        ],
    )
    assert [group.max_size for group in groups] == [8, 10, None]


def test_sizes_that_cluster_autoscaler_reports() -> None:
    text = "nodeGroups:\n- name: eks-workers-3ac51\n  health: {minSize: 1, maxSize: 7, cloudProviderTarget: 3}\n"
    status = {
        "kind": "ConfigMap",
        "metadata": {"namespace": "kube-system", "name": "cluster-autoscaler-status"},
        "data": {"status": text},
    }
    group = CapacityGroup("workers", "EKS", nodes=["n1"])
    limit_by_autoscaler([group], [autoscaler("--nodes=1:10:eks-workers-3ac51"), status])
    assert (group.max_size, group.coming, group.room) == (7, 2, 4)
    limit_by_autoscaler([group], [{**status, "data": {"status": "Cluster-autoscaler status at …:\n- : ["}}])
    assert group.max_size == 7, "a text that is not understood says nothing"


def test_a_node_group_with_instance_types_takes_their_sizes_from_the_table() -> None:
    document = read_group(
        {
            "apiVersion": "wharfinger.dev/v1alpha1",
            "kind": "NodeGroup",
            "metadata": {"name": "g"},
            "spec": {"template": {"labels": {"pool": "x"}}, "instanceTypes": ["m5.large", "m9.huge"]},
        }
    )
    group, notes = from_node_group(document, KnownNodes(()), PRICES)
    assert [model.instance_type for model in group.models] == ["m5.large"]
    assert group.models[0].named("n")[0]["status"]["allocatable"] == {"pods": "110", "cpu": "2", "memory": "8Gi"}
    assert notes == ["group g: the size of m9.huge is not known, so it is left out"]


def test_types_without_a_price_are_left_out_and_named() -> None:
    known = KnownNodes([labelled("n", {"eks.amazonaws.com/nodegroup": "g", TYPE: "z1"})])
    groups = found_groups(known, ())
    assert priced(groups, known, PRICES) == ["group g: p.yaml has no price for z1, so no such node is added"]
    assert groups[0].models == []
