"""The CEL variable `authorizer` of admission policies and match conditions: questions to RBAC, put together step by step.

Steps are plain maps, which is what CEL functions take and return here; who answers is set for the time of one evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cel_expr_python import cel

from wharfinger.admission.rbac import Attributes, RbacDecision
from wharfinger.admission.request import Request, User, service_account

Allowed = Callable[[Attributes], RbacDecision]
Step = dict[str, Any]

_TEXT, _BOOL = cel.Type.STRING, cel.Type.BOOL
_MAP = cel.Type.Map(_TEXT, cel.Type.DYN)


class _Current:
    """Who answers, since a CEL function gets only its arguments."""

    allowed: Allowed | None = None


CURRENT = _Current()


def authorizer(request: Request) -> Step:
    """The variable's value: the requester, and the resource of the request."""
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


def _user(user: User) -> Step:
    return {"name": user.name, "groups": list(user.groups), "uid": user.uid}


def _step(name: str) -> Callable[[Step, str], Step]:
    return lambda step, text: {**step, name: text}


def _path(step: Step, path: str) -> Step:
    if not path:
        raise ValueError("path must not be empty")
    return {"user": step["user"], "path": path}


def _group(step: Step, group: str) -> Step:
    return {"user": step["user"], "group": group}


def _account(step: Step, namespace: str, name: str) -> Step:
    return {"user": _user(service_account(namespace, name))}


def _unchanged(step: Step, text: str) -> Step:
    return step  # RBAC looks at no selectors


def _check(step: Step, verb: str) -> Step:
    if CURRENT.allowed is None:
        raise ValueError("there is no one to ask here")
    who = step["user"]
    decision = CURRENT.allowed(
        Attributes(
            User(who["name"], tuple(who["groups"]), who["uid"]),
            verb,
            **{part: step[part] for part in Attributes.__struct_fields__[2:] if part in step},
        )
    )
    return {"allowed": decision.allowed, "reason": decision.reason}


def functions() -> cel.CelExtension:
    def member(name: str, result: Any, parameters: tuple[Any, ...], implementation: Callable[..., Any]) -> Any:
        overload = cel.Overload(f"authorizer_{name}", result, [_MAP, *parameters], True, implementation)
        return cel.FunctionDecl(name, [overload])

    return cel.CelExtension(
        "authorizer",
        [
            member("path", _MAP, (_TEXT,), _path),
            member("serviceAccount", _MAP, (_TEXT, _TEXT), _account),
            member("group", _MAP, (_TEXT,), _group),
            *(member(name, _MAP, (_TEXT,), _step(name)) for name in ("resource", "subresource", "namespace", "name")),
            *(member(name, _MAP, (_TEXT,), _unchanged) for name in ("fieldSelector", "labelSelector")),
            member("check", _MAP, (_TEXT,), _check),
            member("allowed", _BOOL, (), lambda decision: bool(decision["allowed"])),
            member("reason", _TEXT, (), lambda decision: str(decision["reason"])),
            member("errored", _BOOL, (), lambda decision: False),
            member("error", _TEXT, (), lambda decision: ""),
        ],
    )
