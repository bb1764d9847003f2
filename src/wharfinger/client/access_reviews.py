"""SubjectAccessReviews: asks an API server whether a user may do something."""

from __future__ import annotations

from wharfinger.admission.rbac import Attributes
from wharfinger.api.kinds.builtin import SUBJECT_ACCESS_REVIEWS
from wharfinger.client.interface import Client


async def is_allowed(client: Client, asked: Attributes) -> bool:
    """Raises ApiError if the API server gives no answer."""
    user = asked.user
    attributes = {
        "verb": asked.verb,
        "group": asked.group,
        "resource": asked.resource,
        "subresource": asked.subresource,
        "namespace": asked.namespace,
        "name": asked.name,
    }
    review = {
        "apiVersion": SUBJECT_ACCESS_REVIEWS.api_version,
        "kind": SUBJECT_ACCESS_REVIEWS.kind,
        "metadata": {},
        "spec": {
            "user": user.name,
            "groups": list(user.groups),
            "uid": user.uid,
            "extra": {key: list(values) for key, values in user.extra.items()},
            **(
                {"nonResourceAttributes": {"verb": asked.verb, "path": asked.path}}
                if asked.path
                else {"resourceAttributes": attributes}
            ),
        },
    }
    answer = await client.create(SUBJECT_ACCESS_REVIEWS, review)
    return (answer.get("status") or {}).get("allowed") is True
