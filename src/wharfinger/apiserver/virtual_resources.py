"""Virtual resources that are answered, not stored: token and access reviews, and token requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wharfinger.admission.authorization import Authorizer
from wharfinger.admission.node_authorizer import node_name
from wharfinger.admission.rbac import Attributes, RbacIndex
from wharfinger.admission.request import User
from wharfinger.api.errors import BadRequest, conflict, invalid_object, not_found
from wharfinger.api.fields import FieldError, invalid
from wharfinger.api.registry import Document
from wharfinger.api.selectors import BadSelector, FieldRequirement, parse_field_selector
from wharfinger.api.times import format_time
from wharfinger.api.token_volumes import TOKEN_SECONDS
from wharfinger.api.views.rbac import PolicyRule
from wharfinger.apiserver.authentication import Authenticator
from wharfinger.apiserver.tokens import AUDIENCE, BoundObject, InvalidToken, Lookup, TokenSigner

_AUTHENTICATION = "authentication.k8s.io"
_AUTHORIZATION = "authorization.k8s.io"
_MINIMUM_SECONDS = 10 * 60
_DEFAULT_SECONDS = 60 * 60
_MAXIMUM_SECONDS = 1 << 32
_LONGEST_SELECTOR = 16 * 1024  # characters
_EXTENDED_SECONDS = 365 * 24 * 60 * 60


@dataclass(frozen=True, slots=True)
class VirtualResources:
    """Answers reviews with the same document and its status."""

    rbac: RbacIndex
    authorizer: Authorizer
    authenticator: Authenticator
    signer: TokenSigner
    lookup: Lookup
    now: Callable[[], float]

    def answer(self, kind: str, document: Document, user: User, namespace: str) -> Document:
        spec = document.get("spec") or {}
        match kind:
            case "SelfSubjectReview":
                made = {**(document.get("metadata") or {}), "creationTimestamp": format_time(self.now())}
                return {**document, "metadata": made, "status": {"userInfo": user.info()}}
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
        return {"authenticated": True, "user": user.info(), "audiences": list(audiences)}

    def _access(self, asked: Attributes) -> Document:
        decision = self.authorizer.allowed(asked)
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
            **_completeness(user),
        }

    def prepare_token(self, document: Document, namespace: str, account_name: str) -> Document:
        """A valid TokenRequest for a service account, with defaults. After pkg/registry/core/serviceaccount/storage."""
        given = document.get("metadata") or {}
        for part, wanted in (("name", account_name), ("namespace", namespace)):
            if given.get(part) and given[part] != wanted:
                what = part if part == "namespace" else "name"
                fault = invalid(f"metadata.{part}", given[part], f"must match the service account {what} if specified")
                raise invalid_object(_AUTHENTICATION, "TokenRequest", account_name, [fault])
        uid = self._account(namespace, account_name)["metadata"].get("uid", "")
        if given.get("uid") and given["uid"] != uid:
            why = f"the UID in the token request ({given['uid']}) does not match the UID of the service account ({uid})"
            raise conflict(_AUTHENTICATION, "TokenRequest", account_name, why)
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
            raise invalid_object(_AUTHENTICATION, "TokenRequest", "", faults)
        return {
            "kind": "TokenRequest",
            "apiVersion": f"{_AUTHENTICATION}/v1",
            "metadata": {
                **given,
                "name": account_name,
                "namespace": namespace,
                "uid": uid,
                "creationTimestamp": format_time(self.now()),
            },
            "spec": {
                **spec,
                "audiences": list(spec.get("audiences") or ()) or [AUDIENCE],
                "expirationSeconds": seconds,
            },
            "status": {"token": "", "expirationTimestamp": None},
        }

    def issue_token(self, request: Document) -> Document:
        """The answer to a prepared and admitted TokenRequest."""
        metadata, spec = request["metadata"], request["spec"]
        account = self._account(metadata["namespace"], metadata["name"])
        bound = self._bound(spec.get("boundObjectRef"), metadata["namespace"], metadata["name"])
        audiences, seconds, now = spec["audiences"], spec["expirationSeconds"], self.now()
        # Old clients read the token of the volume that admission adds only once. Such a token lives longer than asked for.
        extended = "pod" in bound and seconds == TOKEN_SECONDS and set(audiences) <= {AUDIENCE}
        token = self.signer.issue(
            account,
            audiences=audiences,
            now=now,
            seconds=_EXTENDED_SECONDS if extended else seconds,
            bound=bound,
            warn_after=seconds if extended else 0,
        )
        return {**request, "status": {"token": token, "expirationTimestamp": format_time(int(now) + seconds)}}

    def _account(self, namespace: str, name: str) -> Document:
        account = self.lookup("serviceaccount", namespace, name)
        if account is None:
            raise not_found("", "serviceaccounts", name)
        return account

    def _bound(self, reference: Document | None, namespace: str, account: str) -> dict[str, BoundObject]:
        if not reference:
            return {}
        kind, name, wanted = reference.get("kind") or "", reference.get("name") or "", reference.get("uid") or ""
        group, _, version = (reference.get("apiVersion") or "").rpartition("/")
        plural = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}.get(kind) if not group else None
        if plural is None:
            what = f"{group}/{version}, Kind={kind}"
            raise BadRequest(f"cannot bind token to object of type {what}")
        found = self.lookup(kind.lower(), "" if kind == "Node" else namespace, name)
        if found is None:
            raise not_found("", plural, name)
        spec = found.get("spec") or {}
        if kind == "Pod" and spec.get("serviceAccountName") != account:
            why = f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
            raise BadRequest(why)
        uid = found["metadata"].get("uid", "")
        if wanted and wanted != uid:
            why = f"the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
            raise conflict("", kind, name, why)
        bound = {kind.lower(): BoundObject(name, uid)}
        if kind == "Pod" and (node_name := spec.get("nodeName")):
            node = self.lookup("node", "", node_name)
            bound["node"] = BoundObject(node_name, "" if node is None else node["metadata"].get("uid", ""))
        return bound


def _completeness(user: User) -> Document:
    if node_name(user) is None:
        return {"incomplete": False}
    return {"incomplete": True, "evaluationError": "node authorizer does not support user rule resolution"}


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
        fields=_field_requirements(asked.get("fieldSelector") or {}),
    )


def _field_requirements(selector: Document) -> tuple[FieldRequirement, ...]:
    """The field selector of an access review as far as it is understood; the rest only makes a request narrower."""
    if raw := selector.get("rawSelector"):
        if len(raw) > _LONGEST_SELECTOR:
            return ()
        try:
            return parse_field_selector(raw)
        except BadSelector:
            return ()
    return tuple(
        FieldRequirement(one.get("key") or "", one["values"][0], one.get("operator") == "In")
        for one in selector.get("requirements") or ()
        if one.get("operator") in ("In", "NotIn") and len(one.get("values") or ()) == 1
    )


def _resource_rule(rule: PolicyRule) -> Document:
    made: Document = {"verbs": list(rule.verbs), "apiGroups": list(rule.api_groups), "resources": list(rule.resources)}
    return {**made, "resourceNames": list(rule.resource_names)} if rule.resource_names else made
