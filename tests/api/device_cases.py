"""Objects of dynamic resource allocation that an API server refuses, for comparison with a real one.

A case is a new object, an update of one, or an update of its status.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]

DRIVER = "gpu.example.com"
LONG = "a" * 64
UID = "3f1b1b9e-7f0c-4d6e-9d5c-0a1b2c3d4e5f"


@dataclass(frozen=True)
class RefusedObject:
    name: str
    document: Document
    changed: Document | None = None  # an update of the object, or of its status
    status: bool = False


def thing(kind: str, spec: Document, **rest: Any) -> Document:
    named = {"name": rest.pop("name", "x")}
    if kind in ("ResourceClaim", "ResourceClaimTemplate"):
        named["namespace"] = "default"
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": named, "spec": spec, **rest}


def exactly(**fields: Any) -> Document:
    return {"name": "gpu", "exactly": {"deviceClassName": "gpu", **fields}}


def claim(*requests: Document, **devices: Any) -> Document:
    return thing("ResourceClaim", {"devices": {"requests": list(requests) or [exactly()], **devices}})


def template(*requests: Document, **metadata: Any) -> Document:
    spec: Document = {"spec": {"devices": {"requests": list(requests) or [exactly()]}}}
    if metadata:
        spec["metadata"] = metadata
    return thing("ResourceClaimTemplate", spec)


def with_status(**status: Any) -> tuple[Document, Document]:
    before = claim(exactly(), {"name": "any", "firstAvailable": [{"name": "a", "deviceClassName": "gpu"}]})
    return before, {**copy.deepcopy(before), "status": status}


def result(**fields: Any) -> Document:
    return {"request": "gpu", "driver": DRIVER, "pool": "n1", "device": "gpu-0", **fields}


def allocation(*results: Document, **rest: Any) -> Document:
    return {"devices": {"results": list(results) or [result()], **rest}}


def slice_of(*devices: Document, **spec: Any) -> Document:
    own: Document = {
        "driver": DRIVER,
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "devices": list(devices) or [{"name": "gpu-0"}],
        **spec,
    }
    return thing("ResourceSlice", {name: value for name, value in own.items() if value is not None})


def device(**fields: Any) -> Document:
    return {"name": "gpu-0", **fields}


def shared(policy: Document, value: str = "10Gi") -> Document:
    return slice_of(device(allowMultipleAllocations=True, capacity={"mem": {"value": value, "requestPolicy": policy}}))


def device_class(**spec: Any) -> Document:
    return thing("DeviceClass", spec)


def rule(taint: Document, **spec: Any) -> Document:
    return thing("DeviceTaintRule", {"taint": taint, **spec})


def cel(text: str) -> list[Document]:
    return [{"cel": {"expression": text}}]


def opaque(driver: str = DRIVER, **parameters: Any) -> Document:
    return {"opaque": {"driver": driver, "parameters": parameters}}


CLAIMS = [
    RefusedObject("request without a name", claim({"exactly": {"deviceClassName": "gpu"}})),
    RefusedObject("request of no kind", claim({"name": "gpu"})),
    RefusedObject(
        "request of two kinds", claim({**exactly(), "firstAvailable": [{"name": "a", "deviceClassName": "g"}]})
    ),
    RefusedObject("name with capitals", claim({**exactly(), "name": "GPU"})),
    RefusedObject("name with dots", claim({**exactly(), "name": "a.b"})),
    RefusedObject("name too long", claim({**exactly(), "name": LONG})),
    RefusedObject("same name twice", claim(exactly(), exactly(count=2, selectors=cel("true")))),
    RefusedObject("no class", claim({"name": "gpu", "exactly": {}})),
    RefusedObject("class with a bad name", claim(exactly(deviceClassName="A_B"))),
    RefusedObject("33 requests", claim(*({**exactly(), "name": f"r{n}"} for n in range(33)))),
    RefusedObject("unknown mode", claim(exactly(allocationMode="Some"))),
    RefusedObject("All with a count", claim(exactly(allocationMode="All", count=2))),
    RefusedObject("negative count", claim(exactly(count=-1))),
    RefusedObject("selector of no kind", claim(exactly(selectors=[{}]))),
    RefusedObject("33 selectors", claim(exactly(selectors=cel("true") * 33))),
    RefusedObject("toleration with a bad key", claim(exactly(tolerations=[{"key": "a b", "operator": "Exists"}]))),
    RefusedObject(
        "Exists with a value", claim(exactly(tolerations=[{"key": "a", "operator": "Exists", "value": "v"}]))
    ),
    RefusedObject("toleration with a bad value", claim(exactly(tolerations=[{"key": "a", "value": "a b"}]))),
    RefusedObject("toleration with an unknown operator", claim(exactly(tolerations=[{"key": "a", "operator": "Gt"}]))),
    RefusedObject(
        "toleration with an unknown effect",
        claim(exactly(tolerations=[{"key": "a", "operator": "Exists", "effect": "Never"}])),
    ),
    RefusedObject(
        "alternative without a class and without a name", claim({"name": "any", "firstAvailable": [{"name": ""}]})
    ),
    RefusedObject(
        "alternative with a bad class",
        claim({"name": "any", "firstAvailable": [{"name": "a", "deviceClassName": "A_B"}]}),
    ),
    RefusedObject(
        "9 alternatives",
        claim({"name": "any", "firstAvailable": [{"name": f"a{n}", "deviceClassName": "g"} for n in range(9)]}),
    ),
    RefusedObject(
        "same alternative twice",
        claim({"name": "any", "firstAvailable": [{"name": "a", "deviceClassName": f"g{n}"} for n in range(2)]}),
    ),
    RefusedObject(
        "alternative with All and a count",
        claim(
            {
                "name": "any",
                "firstAvailable": [{"name": "a", "deviceClassName": "g", "allocationMode": "All", "count": 3}],
            }
        ),
    ),
    RefusedObject("constraint of no kind", claim(constraints=[{"requests": ["gpu"]}])),
    RefusedObject("constraint without a domain", claim(constraints=[{"matchAttribute": "model"}])),
    RefusedObject("constraint with an empty domain", claim(constraints=[{"matchAttribute": "/model"}])),
    RefusedObject("constraint with an empty name", claim(constraints=[{"distinctAttribute": "a.example.com/"}])),
    RefusedObject("constraint with a bad domain", claim(constraints=[{"matchAttribute": "A_/m-1"}])),
    RefusedObject("constraint with a long domain", claim(constraints=[{"matchAttribute": f"{LONG}/model"}])),
    RefusedObject("constraint with a long name", claim(constraints=[{"matchAttribute": f"a.example.com/{LONG}"}])),
    RefusedObject(
        "constraint of an unknown request", claim(constraints=[{"requests": ["x"], "matchAttribute": "a/b"}])
    ),
    RefusedObject(
        "constraint of the same request twice",
        claim(constraints=[{"requests": ["gpu", "gpu"], "matchAttribute": "a/b"}]),
    ),
    RefusedObject(
        "constraint of a request of three parts", claim(constraints=[{"requests": ["a/b/c"], "matchAttribute": "a/b"}])
    ),
    RefusedObject(
        "constraint of an unknown alternative", claim(constraints=[{"requests": ["gpu/x"], "matchAttribute": "a/b"}])
    ),
    RefusedObject("33 constraints", claim(constraints=[{"matchAttribute": "a/b"}] * 33)),
    RefusedObject("configuration of no kind", claim(config=[{"requests": ["gpu"]}])),
    RefusedObject("configuration without a driver", claim(config=[opaque("", a=1)])),
    RefusedObject("configuration with a bad driver", claim(config=[opaque("a_b", a=1)])),
    RefusedObject("configuration with a long driver", claim(config=[opaque(LONG, a=1)])),
    RefusedObject("configuration of an unknown request", claim(config=[{"requests": ["x"], **opaque(a=1)}])),
    RefusedObject("33 configurations", claim(config=[opaque(a=1)] * 33)),
    RefusedObject("configuration that is too large", claim(config=[opaque(a="x" * 10240)])),
    RefusedObject("changed spec", claim(), claim(exactly(count=2))),
    RefusedObject("name of the claim", {**claim(), "metadata": {"name": "A_B", "namespace": "default"}}),
    RefusedObject(
        "many faults at once",
        claim(
            {**exactly(deviceClassName=""), "name": "A"},
            {"name": "b"},
            constraints=[{"requests": ["x"]}],
            config=[opaque("a_b", a=1)],
        ),
    ),
]

TEMPLATES = [
    RefusedObject("template with a bad label", template(labels={"a b": "c"})),
    RefusedObject("template with a bad annotation", template(annotations={"a b": "c"})),
    RefusedObject("template without a class", template({"name": "gpu", "exactly": {}})),
    RefusedObject("changed template", template(), template(exactly(count=2))),
]

STATUSES = [
    RefusedObject("reserved but not allocated", *with_status(reservedFor=[{"resource": "pods", "name": "a", "uid": "1"}]), status=True),
    RefusedObject("consumer without anything", *with_status(allocation=allocation(), reservedFor=[{"resource": "", "name": "", "uid": ""}]), status=True),
    RefusedObject("same consumer twice", *with_status(allocation=allocation(), reservedFor=[{"resource": "pods", "name": "a", "uid": "1"}] * 2), status=True),
    RefusedObject("257 consumers", *with_status(allocation=allocation(), reservedFor=[{"resource": "pods", "name": "a", "uid": f"{n}"} for n in range(257)]), status=True),
    RefusedObject("result of an unknown request", *with_status(allocation=allocation(result(request="x"))), status=True),
    RefusedObject("result of an unknown alternative", *with_status(allocation=allocation(result(request="any/b"))), status=True),
    RefusedObject("result without a driver", *with_status(allocation=allocation(result(driver=""))), status=True),
    RefusedObject("result with a bad driver", *with_status(allocation=allocation(result(driver="a_b"))), status=True),
    RefusedObject("result without a pool", *with_status(allocation=allocation(result(pool=""))), status=True),
    RefusedObject("result with a bad pool", *with_status(allocation=allocation(result(pool="a//B"))), status=True),
    RefusedObject("result with a bad device", *with_status(allocation=allocation(result(device="A"))), status=True),
    RefusedObject("result with a bad share", *with_status(allocation=allocation(result(shareID="1"))), status=True),
    RefusedObject("result with failure conditions only", *with_status(allocation=allocation(result(bindingFailureConditions=["a"]))), status=True),
    RefusedObject("33 results", *with_status(allocation=allocation(*(result(device=f"g{n}") for n in range(33)))), status=True),
    RefusedObject("configuration without a source", *with_status(allocation=allocation(config=[{"source": "", **opaque(a=1)}])), status=True),
    RefusedObject("configuration of an unknown source", *with_status(allocation=allocation(config=[{"source": "Me", **opaque(a=1)}])), status=True),
    RefusedObject("selector without terms", *with_status(allocation={**allocation(), "nodeSelector": {"nodeSelectorTerms": []}}), status=True),
    RefusedObject("device that is not allocated", *with_status(allocation=allocation(), devices=[{"driver": DRIVER, "pool": "n1", "device": "gpu-1"}]), status=True),
    RefusedObject("device without anything", *with_status(allocation=allocation(), devices=[{"driver": "", "pool": "", "device": ""}]), status=True),
    RefusedObject("device with a bad share", *with_status(allocation=allocation(result(shareID=UID)), devices=[{"driver": DRIVER, "pool": "n1", "device": "gpu-0", "shareID": "1"}]), status=True),
    RefusedObject("device twice", *with_status(allocation=allocation(), devices=[{"driver": DRIVER, "pool": "n1", "device": "gpu-0"}] * 2), status=True),
    RefusedObject("bad condition", *with_status(allocation=allocation(), devices=[{"driver": DRIVER, "pool": "n1", "device": "gpu-0", "conditions": [{"type": "a b", "status": "Yes", "reason": "a b", "message": "", "lastTransitionTime": None}]}]), status=True),
    RefusedObject("network data", *with_status(allocation=allocation(), devices=[{"driver": DRIVER, "pool": "n1", "device": "gpu-0", "networkData": {"interfaceName": "x" * 257, "hardwareAddress": "x" * 129, "ips": ["10.0.0.1", "10.0.0.1/24", "10.0.0.1/24", "2001:DB8::1/64"]}}]), status=True),
    RefusedObject("data that is no object", *with_status(allocation=allocation(), devices=[{"driver": DRIVER, "pool": "n1", "device": "gpu-0", "data": {"a": "x" * 10240}}]), status=True),
]  # fmt: skip

SLICES = [
    RefusedObject("no driver", slice_of(driver="")),
    RefusedObject("bad driver", slice_of(driver="a_b")),
    RefusedObject("long driver", slice_of(driver=LONG)),
    RefusedObject("bad pool", slice_of(pool={"name": "A//b", "generation": -1, "resourceSliceCount": 0})),
    RefusedObject("no pool name", slice_of(pool={"name": "", "generation": 1, "resourceSliceCount": 1})),
    RefusedObject("no nodes", slice_of(nodeName=None)),
    RefusedObject("empty node", slice_of(nodeName="")),
    RefusedObject("bad node", slice_of(nodeName="A_b")),
    RefusedObject("two kinds of nodes", slice_of(allNodes=True)),
    RefusedObject("not all nodes", slice_of(nodeName=None, allNodes=False)),
    RefusedObject("not for each device", slice_of(nodeName=None, perDeviceNodeSelection=False)),
    RefusedObject("node selector without terms", slice_of(nodeName=None, nodeSelector={"nodeSelectorTerms": []})),
    RefusedObject(
        "node selector with two terms",
        slice_of(
            nodeName=None,
            nodeSelector={"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}] * 2},
        ),
    ),
    RefusedObject(
        "counters beside devices", slice_of(sharedCounters=[{"name": "c", "counters": {"m": {"value": "1"}}}])
    ),
    RefusedObject("129 devices", slice_of(*({"name": f"g{n}"} for n in range(129)))),
    RefusedObject(
        "65 devices with taints",
        slice_of(*({"name": f"g{n}", "taints": [{"key": "a", "effect": "NoSchedule"}]} for n in range(65))),
    ),
    RefusedObject("device twice in a slice", slice_of(device(), device())),
    RefusedObject("device with a bad name", slice_of({"name": "A.b"})),
    RefusedObject(
        "33 attributes and capacities",
        slice_of(
            device(
                attributes={f"a{n}": {"int": n} for n in range(20)}, capacity={f"c{n}": {"value": "1"} for n in range(13)}
            )
        ),
    ),
    RefusedObject("attribute with a bad name", slice_of(device(attributes={"a-b": {"int": 1}}))),
    RefusedObject("attribute with a bad domain", slice_of(device(attributes={"a_b/c": {"int": 1}}))),
    RefusedObject("attribute with an empty domain", slice_of(device(attributes={"/c": {"int": 1}}))),
    RefusedObject("attribute with an empty name", slice_of(device(attributes={"a.com/": {"int": 1}}))),
    RefusedObject("attribute with a long name", slice_of(device(attributes={LONG: {"int": 1}}))),
    RefusedObject("attribute with no value", slice_of(device(attributes={"a": {}}))),
    RefusedObject("attribute with two values", slice_of(device(attributes={"a": {"int": 1, "bool": True}}))),
    RefusedObject("attribute with a list", slice_of(device(attributes={"a": {"ints": [1]}}))),
    RefusedObject("attribute with a long text", slice_of(device(attributes={"a": {"string": LONG + "b"}}))),
    RefusedObject("attribute with a bad version", slice_of(device(attributes={"a": {"version": "1.0"}}))),
    RefusedObject(
        "taint with faults", slice_of(device(taints=[{"key": "a b", "value": "c d", "effect": "Never"}]))
    ),
    RefusedObject("taint without an effect", slice_of(device(taints=[{"key": "", "effect": ""}]))),
    RefusedObject("17 taints", slice_of(device(taints=[{"key": "a", "effect": "None"}] * 17))),
    RefusedObject("consumption without anything", slice_of(device(consumesCounters=[{"counterSet": "", "counters": {}}]))),
    RefusedObject(
        "consumption with bad names",
        slice_of(device(consumesCounters=[{"counterSet": "A", "counters": {"B": {"value": "1"}}}])),
    ),
    RefusedObject(
        "same counters twice",
        slice_of(device(consumesCounters=[{"counterSet": "c", "counters": {"m": {"value": "1"}}}] * 2)),
    ),
    RefusedObject(
        "three sets of counters",
        slice_of(
            device(consumesCounters=[{"counterSet": f"c{n}", "counters": {"m": {"value": "1"}}} for n in range(3)])
        ),
    ),
    RefusedObject(
        "33 counters",
        slice_of(device(consumesCounters=[{"counterSet": "c", "counters": {f"m{n}": {"value": "1"} for n in range(33)}}])),
    ),
    RefusedObject(
        "counter set twice",
        slice_of(devices=None, sharedCounters=[{"name": "c", "counters": {"m": {"value": "1"}}}] * 2),
    ),
    RefusedObject("counter set without counters", slice_of(devices=None, sharedCounters=[{"name": "c"}])),
    RefusedObject("counter set without a name", slice_of(devices=None, sharedCounters=[{"name": "", "counters": {"m": {"value": "1"}}}])),
    RefusedObject(
        "nine counter sets",
        slice_of(devices=None, sharedCounters=[{"name": f"c{n}", "counters": {"m": {"value": "1"}}} for n in range(9)]),
    ),
    RefusedObject("device with a node", slice_of(device(nodeName="n1"))),
    RefusedObject("device without a node", slice_of(device(), nodeName=None, perDeviceNodeSelection=True)),
    RefusedObject(
        "device with two kinds of nodes",
        slice_of(device(nodeName="n1", allNodes=True), nodeName=None, perDeviceNodeSelection=True),
    ),
    RefusedObject(
        "device with an empty node", slice_of(device(nodeName=""), nodeName=None, perDeviceNodeSelection=True)
    ),
    RefusedObject("binding conditions alone", slice_of(device(bindingConditions=["a"]))),
    RefusedObject("failure conditions alone", slice_of(device(bindingFailureConditions=["a"]))),
    RefusedObject("binding conditions that overlap", slice_of(device(bindingConditions=["a", "a"], bindingFailureConditions=["b", "b", "a"]))),
    RefusedObject("five binding conditions", slice_of(device(bindingConditions=list("abcde"), bindingFailureConditions=["f"]))),
    RefusedObject("bad binding conditions", slice_of(device(bindingConditions=["a b"], bindingFailureConditions=["f"]))),
    RefusedObject("policy without sharing", slice_of(device(capacity={"mem": {"value": "1", "requestPolicy": {"default": "1"}}}))),
    RefusedObject("policy of two kinds", shared({"default": "1Gi", "validValues": ["1Gi"], "validRange": {"min": "1Gi"}})),
    RefusedObject("values without a default", shared({"validValues": ["1Gi"]})),
    RefusedObject("default that is no value", shared({"default": "3Gi", "validValues": ["1Gi", "2Gi"]})),
    RefusedObject("values that are not sorted", shared({"default": "1Gi", "validValues": ["2Gi", "1Gi"]})),
    RefusedObject("values that are too large", shared({"default": "1Gi", "validValues": ["1Gi", "20Gi"]})),
    RefusedObject("same value twice", shared({"default": "1Gi", "validValues": ["1Gi", "1024Mi"]})),
    RefusedObject("eleven values", shared({"default": "1", "validValues": [str(n) for n in range(1, 12)]})),
    RefusedObject("range without a default", shared({"validRange": {"min": "1Gi"}})),
    RefusedObject("range without a minimum", shared({"default": "1Gi", "validRange": {"max": "2Gi"}})),
    RefusedObject("range that is too large", shared({"default": "30Gi", "validRange": {"min": "20Gi", "max": "25Gi"}})),
    RefusedObject("range upside down", shared({"default": "1Gi", "validRange": {"min": "3Gi", "max": "2Gi"}})),
    RefusedObject("step that does not fit", shared({"default": "3Gi", "validRange": {"min": "1Gi", "max": "4Gi", "step": "1500Mi"}})),
    RefusedObject("step that is too large", shared({"default": "1Gi", "validRange": {"min": "1Gi", "step": "20Gi"}})),
    RefusedObject("step of nothing", shared({"default": "1Gi", "validRange": {"min": "1Gi", "step": "0"}})),
    RefusedObject("another driver", slice_of(), slice_of(driver="b.example.com")),
    RefusedObject("another node", slice_of(), slice_of(nodeName="n2")),
    RefusedObject(
        "another pool", slice_of(), slice_of(pool={"name": "p2", "generation": 1, "resourceSliceCount": 1})
    ),
]  # fmt: skip

CLASSES = [
    RefusedObject("selector of no kind in a class", device_class(selectors=[{}])),
    RefusedObject("33 selectors in a class", device_class(selectors=cel("true") * 33)),
    RefusedObject("configuration of no kind in a class", device_class(config=[{}])),
    RefusedObject("extended resource without a domain", device_class(extendedResourceName="gpu")),
    RefusedObject("extended resource of Kubernetes", device_class(extendedResourceName="kubernetes.io/gpu")),
    RefusedObject("extended resource of a quota", device_class(extendedResourceName="requests.example.com/gpu")),
    RefusedObject("extended resource with a bad name", device_class(extendedResourceName="example.com/g p")),
    RefusedObject("bad name of a class", {**device_class(), "metadata": {"name": "A_B"}}),
]

RULES = [
    RefusedObject("rule without anything", rule({"key": "", "effect": ""})),
    RefusedObject("rule with an unknown effect", rule({"key": "a", "effect": "Never", "value": "a b"})),
    RefusedObject(
        "rule with bad selectors",
        rule({"key": "a", "effect": "None"}, deviceSelector={"driver": "", "pool": "A//", "device": "B"}),
    ),
]

EXPRESSIONS = [
    RefusedObject("expression that does not parse", claim(exactly(selectors=cel("a b")))),
    RefusedObject("expression of another type", claim(exactly(selectors=cel("1")))),
    RefusedObject("expression that is too long", claim(exactly(selectors=cel("true" + " " * 10240)))),
    RefusedObject("unknown field", claim(exactly(selectors=cel("device.nothing == 1")))),
    RefusedObject("unknown function", device_class(selectors=cel("foo(device)"))),
    RefusedObject("empty expression", device_class(selectors=cel(""))),
    RefusedObject(
        "expression that costs too much",
        device_class(
            selectors=cel(
                "device.attributes['a'].map(x, device.attributes['a'].map(y, device.attributes['a'].map(z, "
                "device.attributes['a'].map(w, x + y + z + w)))).size() > 0"
            )
        ),
    ),
]


def pod(*claims: Document, uses: list[Document] | None = None) -> Document:
    container: Document = {"name": "c", "image": "i"}
    if uses is not None:
        container["resources"] = {"claims": uses}
    spec = {"containers": [container], "resourceClaims": list(claims)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "default"}, "spec": spec}


def pod_status(**status: Any) -> tuple[Document, Document]:
    before = pod({"name": "a", "resourceClaimTemplateName": "t"})
    return before, {**copy.deepcopy(before), "status": status}


A_CLAIM = {"name": "a", "resourceClaimName": "a"}
PODS = [
    RefusedObject("pod with a claim without a name", pod({"resourceClaimName": "a"})),
    RefusedObject("pod with a bad name for a claim", pod({"name": "A", "resourceClaimName": "a"})),
    RefusedObject("pod with a name for no claim", pod({"name": "a"})),
    RefusedObject("pod with a name for two claims", pod({**A_CLAIM, "resourceClaimTemplateName": "b"})),
    RefusedObject("pod with a bad claim", pod({"name": "a", "resourceClaimName": "A_"})),
    RefusedObject("pod with a bad template", pod({"name": "a", "resourceClaimTemplateName": "A_"})),
    RefusedObject("pod with an empty claim", pod({"name": "a", "resourceClaimName": ""})),
    RefusedObject("pod with a name twice", pod(A_CLAIM, A_CLAIM)),
    RefusedObject("container with an unknown claim", pod(A_CLAIM, uses=[{"name": "b"}])),
    RefusedObject("container with a claim where there is none", pod(uses=[{"name": "b"}])),
    RefusedObject("container with a claim without a name", pod(A_CLAIM, uses=[{"name": ""}])),
    RefusedObject("container with a claim twice", pod(A_CLAIM, uses=[{"name": "a"}] * 2)),
    RefusedObject("container with a request twice", pod(A_CLAIM, uses=[{"name": "a", "request": "x"}] * 2)),
    RefusedObject(
        "container with a request and its claim", pod(A_CLAIM, uses=[{"name": "a", "request": "x"}, {"name": "a"}])
    ),
    RefusedObject("container with a bad request", pod(A_CLAIM, uses=[{"name": "a", "request": "X"}])),
    RefusedObject(
        "status of an unknown claim",
        *pod_status(resourceClaimStatuses=[{"name": "z", "resourceClaimName": "a"}]),
        status=True,
    ),
    RefusedObject(
        "status of a claim twice",
        *pod_status(resourceClaimStatuses=[{"name": "a", "resourceClaimName": "x"}] * 2),
        status=True,
    ),
    RefusedObject(
        "status with a bad claim",
        *pod_status(resourceClaimStatuses=[{"name": "a", "resourceClaimName": "X_"}]),
        status=True,
    ),
    RefusedObject(
        "empty status of extended resources",
        *pod_status(extendedResourceClaimStatus={"resourceClaimName": "", "requestMappings": []}),
        status=True,
    ),
    RefusedObject(
        "bad status of extended resources",
        *pod_status(
            extendedResourceClaimStatus={
                "resourceClaimName": "X_",
                "requestMappings": [
                    {"containerName": "z", "resourceName": "example.com/a", "requestName": "A"},
                    {"containerName": "c", "resourceName": "example.com/a", "requestName": "a"},
                    {"containerName": "c", "resourceName": "example.com/a", "requestName": "a"},
                ],
            }
        ),
        status=True,
    ),
]

REFUSED = [*CLAIMS, *TEMPLATES, *STATUSES, *SLICES, *CLASSES, *PODS]
