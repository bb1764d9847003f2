"""Virtual resources that are answered, not stored: token and access reviews, and token requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wharfinger.admission.rbac import Attributes, RbacIndex
from wharfinger.admission.request import User
from wharfinger.api.errors import BadRequest, conflict, invalid_object, not_found
from wharfinger.api.fields import FieldError, invalid
from wharfinger.api.registry import Document
from wharfinger.api.times import format_time
from wharfinger.api.views.rbac import PolicyRule
from wharfinger.apiserver.authentication import Authenticator
from wharfinger.apiserver.tokens import AUDIENCE, InvalidToken, Lookup, TokenSigner

_AUTHORIZATION = "authorization.k8s.io"
_MINIMUM_SECONDS = 10 * 60
_DEFAULT_SECONDS = 60 * 60
_MAXIMUM_SECONDS = 1 << 32


@dataclass(frozen=True, slots=True)
class VirtualResources:
    """Answers reviews with the same document and its status."""

    rbac: RbacIndex
    authenticator: Authenticator
    signer: TokenSigner
    lookup: Lookup
    now: Callable[[], float]

    def answer(self, kind: str, document: Document, user: User, namespace: str) -> Document:
        spec = document.get("spec") or {}
        match kind:
            case "SelfSubjectReview":
                made = {**(document.get("metadata") or {}), "creationTimestamp": format_time(self.now())}
                return {**document, "metadata": made, "status": {"userInfo": _user_info(user)}}
            case "TokenReview":
                return {**document, "status": self._token(spec)}
            case "SelfSubjectAccessReview" | "SubjectAccessReview" | "LocalSubjectAccessReview":
                if faults := _faults(kind, spec, namespace):
                    raise invalid_object(_AUTHORIZATION, kind, "", faults)
                subject = user if kind == "SelfSubjectAccessReview" else _subject(spec)
                return {**document, "status": self._access(_attributes(spec, subject))}
            case "SelfSubjectRulesReview":
                return {**document, "status": self._rules(user, spec.get("namespace") or "")}
        raise BadRequest(f"{kind} cannot be answered")

    def _token(self, spec: Document) -> Document:
        token = spec.get("token") or ""
        if not token:
            raise BadRequest("token is required for TokenReview in authentication")
        try:
            user, audiences = self.authenticator.review(token, spec.get("audiences") or ())
        except InvalidToken as error:
            return {"authenticated": False, "user": {}, "error": f"[invalid bearer token, {error}]"}
        return {"authenticated": True, "user": _user_info(user), "audiences": list(audiences)}

    def _access(self, asked: Attributes) -> Document:
        decision = self.rbac.allowed(asked)
        return {"allowed": decision.allowed, **({"reason": decision.reason} if decision.reason else {})}

    def _rules(self, user: User, namespace: str) -> Document:
        if not namespace:
            raise BadRequest("no namespace on request")
        rules = self.rbac.rules_for(user, namespace)
        return {
            "resourceRules": [_resource_rule(rule) for rule in rules if rule.resources],
            "nonResourceRules": [
                {"verbs": list(rule.verbs), "nonResourceURLs": list(rule.non_resource_urls)}
                for rule in rules
                if rule.non_resource_urls
            ],
            "incomplete": False,
        }

    def token_request(self, document: Document, namespace: str, account_name: str) -> Document:
        """Answers a TokenRequest for a service account."""
        account = self.lookup("serviceaccount", namespace, account_name)
        if account is None:
            raise not_found("", "serviceaccounts", account_name)
        spec = document.get("spec") or {}
        seconds = spec.get("expirationSeconds")
        seconds = _DEFAULT_SECONDS if seconds is None else seconds
        faults: list[FieldError] = []
        if seconds < _MINIMUM_SECONDS:
            faults.append(invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes"))
        if seconds > _MAXIMUM_SECONDS:
            faults.append(
                invalid("spec.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")
            )
        if faults:
            raise invalid_object("authentication.k8s.io", "TokenRequest", "", faults)
        audiences = list(spec.get("audiences") or ()) or [AUDIENCE]
        now = self.now()
        bound = self._bound(spec.get("boundObjectRef"), namespace, account_name)
        token = self.signer.issue(account, audiences=audiences, now=now, seconds=seconds, bound=bound)
        metadata = {
            **(document.get("metadata") or {}),
            "name": account_name,
            "namespace": namespace,
            "creationTimestamp": format_time(now),
        }
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": metadata,
            "spec": {**spec, "audiences": audiences, "expirationSeconds": seconds},
            "status": {"token": token, "expirationTimestamp": format_time(int(now) + seconds)},
        }

    def _bound(self, reference: Document | None, namespace: str, account: str) -> tuple[str, str, str] | None:
        if not reference:
            return None
        kind, name, wanted = reference.get("kind") or "", reference.get("name") or "", reference.get("uid") or ""
        plural = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}.get(kind)
        if plural is None:
            raise BadRequest(f"cannot bind token for serviceaccount {account!r} to type {kind!r}")
        found = self.lookup(kind.lower(), "" if kind == "Node" else namespace, name)
        if found is None:
            raise not_found("", plural, name)
        uid = found["metadata"].get("uid", "")
        if wanted and wanted != uid:
            why = f"the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
            raise conflict("", plural, name, why)
        if kind == "Pod" and (found.get("spec") or {}).get("serviceAccountName") != account:
            raise BadRequest(
                f"cannot bind token for serviceaccount {account!r} to pod running with different serviceaccount name."
            )
        return kind.lower(), name, uid


def _user_info(user: User) -> Document:
    info: Document = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        info["uid"] = user.uid
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra.items()}
    return info


def _faults(kind: str, spec: Document, namespace: str) -> list[FieldError]:
    """Validation errors of an access review."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    faults = []
    if resource is not None and path is not None:
        why = "cannot be specified in combination with resourceAttributes"
        faults.append(invalid("spec.nonResourceAttributes", path, why))
    if resource is None and path is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        faults.append(invalid("spec.resourceAttributes", None, why))
    if kind != "SelfSubjectAccessReview" and not spec.get("user") and not spec.get("groups"):
        faults.append(invalid("spec.user", "", "at least one of user or group must be specified"))
    if kind == "LocalSubjectAccessReview":
        found = (resource or {}).get("namespace") or ""
        if resource is not None and found != namespace:
            faults.append(invalid("spec.resourceAttributes.namespace", found, "must match metadata.namespace"))
        if path is not None:
            faults.append(invalid("spec.nonResourceAttributes", path, "disallowed on this kind of request"))
    return faults


def _subject(spec: Document) -> User:
    extra = {key.lower(): tuple(values or ()) for key, values in (spec.get("extra") or {}).items()}
    return User(spec.get("user") or "", tuple(spec.get("groups") or ()), spec.get("uid") or "", extra)


def _attributes(spec: Document, user: User) -> Attributes:
    if (path := spec.get("nonResourceAttributes")) is not None:
        return Attributes(user, path.get("verb") or "", path=path.get("path") or "")
    asked: Document = spec["resourceAttributes"]
    return Attributes(
        user,
        asked.get("verb") or "",
        asked.get("group") or "",
        asked.get("resource") or "",
        asked.get("subresource") or "",
        asked.get("name") or "",
        asked.get("namespace") or "",
    )


def _resource_rule(rule: PolicyRule) -> Document:
    made: Document = {"verbs": list(rule.verbs), "apiGroups": list(rule.api_groups), "resources": list(rule.resources)}
    return {**made, "resourceNames": list(rule.resource_names)} if rule.resource_names else made
