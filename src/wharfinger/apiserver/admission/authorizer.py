"""The CEL variable `authorizer` of admission policies and match conditions: builds authorization checks step by step.

A check under construction is a plain map, because CEL functions take and return no other objects. The context of the
evaluation answers it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cel_expr_python import cel

from wharfinger.admission.rbac import Attributes, RbacDecision
from wharfinger.admission.request import Request, User, service_account
from wharfinger.cel import current_context
from wharfinger.cel.library import BOOL, MAP, TEXT

Authorize = Callable[[Attributes], RbacDecision]
Check = dict[str, Any]


def authorizer(request: Request) -> Check:
    """The value of the variable: checks for the user and for the resource of the request."""
    user = _user(request.user)
    resource = {
        "user": user,
        "group": request.resource.group,
        "resource": request.resource.plural,
        "subresource": request.subresource,
        "namespace": request.namespace,
        "name": request.name,
    }
    return {"user": user, "requestResource": resource}


def _user(user: User) -> Check:
    return {"name": user.name, "groups": list(user.groups), "uid": user.uid}


def _set(name: str) -> Callable[[Check, str], Check]:
    return lambda check, text: {**check, name: text}


def _path(check: Check, path: str) -> Check:
    if not path:
        raise ValueError("path must not be empty")
    return {"user": check["user"], "path": path}


def _group(check: Check, group: str) -> Check:
    return {"user": check["user"], "group": group}


def _account(check: Check, namespace: str, name: str) -> Check:
    return {"user": _user(service_account(namespace, name))}


def _unchanged(check: Check, text: str) -> Check:
    return check  # RBAC ignores selectors


def _check(check: Check, verb: str) -> Check:
    authorize: Authorize | None = current_context()
    if authorize is None:
        raise ValueError("no authorizer is available")
    user = check["user"]
    decision = authorize(
        Attributes(
            User(user["name"], tuple(user["groups"]), user["uid"]),
            verb,
            **{part: check[part] for part in Attributes.__struct_fields__[2:] if part in check},
        )
    )
    return {"allowed": decision.allowed, "reason": decision.reason}


def authorizer_functions() -> list[cel.FunctionDecl]:
    def member(name: str, result: Any, parameters: tuple[Any, ...], implementation: Callable[..., Any]) -> Any:
        overload = cel.Overload(f"authorizer_{name}", result, [MAP, *parameters], True, implementation)
        return cel.FunctionDecl(name, [overload])

    return [
        member("path", MAP, (TEXT,), _path),
        member("serviceAccount", MAP, (TEXT, TEXT), _account),
        member("group", MAP, (TEXT,), _group),
        *(member(name, MAP, (TEXT,), _set(name)) for name in ("resource", "subresource", "namespace", "name")),
        *(member(name, MAP, (TEXT,), _unchanged) for name in ("fieldSelector", "labelSelector")),
        member("check", MAP, (TEXT,), _check),
        member("allowed", BOOL, (), lambda decision: bool(decision["allowed"])),
        member("reason", TEXT, (), lambda decision: str(decision["reason"])),
        member("errored", BOOL, (), lambda decision: False),
        member("error", TEXT, (), lambda decision: ""),
    ]
