"""The vocabulary of roles that the embedded API server and `wharf install` share."""

from __future__ import annotations

from wharfinger.contributions import RoleRule

RBAC = "rbac.authorization.k8s.io"
LEASES = "coordination.k8s.io"
AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
"""The annotation of a default role or binding; `"false"` means that an administrator maintains it."""

READ = "get list watch"
WRITE = "create delete deletecollection patch update"
CRUD = f"{READ} {WRITE}"
EVENTS = (RoleRule("", "events", "create patch update"), RoleRule("events.k8s.io", "events", "create patch update"))
REVIEWS = (
    RoleRule("authentication.k8s.io", "tokenreviews", "create"),
    RoleRule("authorization.k8s.io", "subjectaccessreviews", "create"),
)
