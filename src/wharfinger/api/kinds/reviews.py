"""Reviews: queries in the form of objects, which are answered on create and not stored (`Kind.stored`)."""

from __future__ import annotations

from wharfinger.api.registry import Kind
from wharfinger.api.validation.common import checked


def _review(group: str, kind: str, plural: str, *, namespaced: bool = False) -> Kind:
    return Kind(
        group,
        kind,
        plural,
        namespaced=namespaced,
        verbs=("create",),
        generation=False,
        validate=checked(f"{group}/v1", kind),
    )


KINDS = (
    _review("authentication.k8s.io", "TokenReview", "tokenreviews"),
    _review("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews"),
    _review("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews"),
    _review("authorization.k8s.io", "LocalSubjectAccessReview", "localsubjectaccessreviews", namespaced=True),
    _review("authorization.k8s.io", "SelfSubjectAccessReview", "selfsubjectaccessreviews"),
    _review("authorization.k8s.io", "SelfSubjectRulesReview", "selfsubjectrulesreviews"),
)
