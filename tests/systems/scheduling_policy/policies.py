"""Builders for SchedulingPolicy tests: policies, grants, worlds, pods and requests."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from tests.admission.rbac_objects import binding, role, rule

from wharfinger.admission.rbac import RbacIndex
from wharfinger.admission.request import Request, Review, User
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Resource
from wharfinger.systems.scheduling_policy.admission.reviewer import SchedulingPolicyReviewer
from wharfinger.systems.scheduling_policy.kinds.views import HARD
from wharfinger.systems.scheduling_policy.rules import shipped
from wharfinger.systems.scheduling_policy.rules.lookup import FixedPolicies
from wharfinger.systems.scheduling_policy.settings import SchedulingPolicySettings

SIGS = "scheduling.sigs.x-k8s.io"
ANN = User("ann", ("devs", "system:authenticated"))
EVERYONE = ("Group", "system:serviceaccounts")

Document = dict[str, Any]


def policy(name: str, spec: Document, **annotations: str) -> Document:
    return {
        "apiVersion": f"{SIGS}/v1alpha1",
        "kind": "SchedulingPolicy",
        "metadata": {"name": name, "annotations": annotations},
        "spec": spec,
    }


def grant(name: str, *subjects: tuple[str, ...], namespace: str = "", group: str = SIGS) -> list[Document]:
    subjects = subjects or (EVERYONE,)
    return [
        role(f"sp:{name}", rule("use", "schedulingpolicies", group, (name,))),
        binding(f"sp:{name}", f"sp:{name}", *subjects, namespace=namespace),
    ]


def world(*specs: Document | tuple[str, Document], rbac: list[Document] | None = None, **more: Any) -> FixedPolicies:
    """A world where every service account may use all the policies given, unless `rbac` says otherwise."""
    policies = [
        policy(f"p{index}", each)
        if isinstance(each, dict) and "metadata" not in each
        else each
        if isinstance(each, dict)
        else policy(*each)
        for index, each in enumerate(specs)
    ]
    if rbac is None:
        rbac = [item for each in policies for item in grant(each["metadata"]["name"])]
    return FixedPolicies(policies, RbacIndex(rbac), **more)


def shipped_world(**more: Any) -> FixedPolicies:
    return FixedPolicies(shipped.policies(), RbacIndex([*shipped.roles(), *shipped.bindings()]), **more)


def pod(spec: Document | None = None, **metadata: Any) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", **metadata},
        "spec": {"containers": [{"name": "c", "image": "i"}], **(spec or {})},
    }


def hard(*terms: list[Document] | Document) -> Document:
    """Affinity with hard node affinity terms; a list holds the expressions of a term."""
    listed = [{"matchExpressions": term} if isinstance(term, list) else term for term in terms]
    return {"nodeAffinity": {HARD: {"nodeSelectorTerms": listed}}}


def is_in(key: str, *values: str) -> Document:
    return {"key": key, "operator": "In", "values": list(values)}


ENFORCE = SchedulingPolicySettings(mode="enforce")


def request(
    document: Document,
    *,
    user: User = ANN,
    old: Document | None = None,
    resource: Resource = PODS,
    namespace: str = "default",
    subresource: str = "",
) -> Request:
    name = document["metadata"].get("name", "")
    return Request("UPDATE" if old else "CREATE", resource, namespace, name, user, deepcopy(document), old, subresource)


def admit(
    where: FixedPolicies, document: Document, settings: SchedulingPolicySettings = ENFORCE, **more: Any
) -> tuple[Review, Document]:
    """Both phases in order, as the chain runs them; the review that decided, and the object as it came out."""
    asked = request(document, **more)
    review = SchedulingPolicyReviewer(where, settings, mutating=True).review(asked)
    if review.denied is None:
        review = SchedulingPolicyReviewer(where, settings, mutating=False).review(asked)
    assert asked.object is not None
    return review, asked.object


def refusal(where: FixedPolicies, document: Document, settings: SchedulingPolicySettings = ENFORCE, **more: Any) -> str:
    """Why it is refused; empty when it is admitted."""
    review, _ = admit(where, document, settings, **more)
    return "" if review.denied is None else review.denied.message


def allowing_all() -> Document:
    return {"allowed": {"schedulerNames": [], "nodeSelectors": {}, "tolerations": [], "affinities": {}}}
