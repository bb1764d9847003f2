"""Records requests while they are answered, and turns the records into events.

In the event loop a request costs one object and a few assignments; the events are built and encoded by the thread of the log.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import msgspec

from wharfinger.admission.request import User
from wharfinger.api.registry import Document
from wharfinger.api.times import format_micro_time
from wharfinger.apiserver.audit.log import AuditLog, AuditLogSettings
from wharfinger.apiserver.audit.policy import (
    API_VERSION,
    COMPLETE,
    LEVEL_NAMES,
    PANIC,
    RECEIVED,
    STARTED,
    AuditDecision,
    AuditLevel,
    AuditPolicy,
)
from wharfinger.apiserver.request_info import RequestInfo

if TYPE_CHECKING:
    from wharfinger.apiserver.exchange import ApiExchange

_LONGEST_ID = 64
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class AuditRecord:
    """What is known of one request. Handlers add to `annotations`; only the stages make copies."""

    __slots__ = (
        "_auditor",
        "agent",
        "annotations",
        "decision",
        "id",
        "impersonated",
        "info",
        "level",
        "name",
        "namespace",
        "received",
        "request",
        "response",
        "source",
        "status",
        "uri",
        "user",
        "verb",
    )

    def __init__(
        self,
        auditor: Auditor,
        decision: AuditDecision,
        user: User | None,
        verb: str,
        info: RequestInfo | None,
        exchange: ApiExchange,
    ) -> None:
        self._auditor = auditor
        self.decision = decision
        self.level = decision.level
        self.id = _audit_id(exchange.headers.get(b"audit-id"))
        self.user = user
        self.verb = verb
        self.info = info
        self.uri = (exchange.path, exchange.raw_query)
        self.agent = exchange.headers.get(b"user-agent", b"")
        self.source = exchange.source
        self.received = time.time()
        self.annotations: dict[str, str] = {}
        self.impersonated: User | None = None
        self.name = self.namespace = ""  # of a created object
        self.status = 0
        self.request: bytes | None = None  # JSON of the body
        self.response: bytes | None = None

    def answered(self, status: int, body: bytes, json: bool) -> None:
        self.status = status
        if json and (self.level >= AuditLevel.REQUEST_RESPONSE or status >= 400 or body.startswith(_STATUS_HEAD)):
            self.response = body

    def stream(self) -> None:
        """Called before the head of a stream is sent."""
        self.status = 200
        self._auditor.started(self)

    def concerns(self, document: Document, data: bytes) -> None:
        """Called with the object of a request, whose path may not have its name, and its JSON."""
        if self.level >= AuditLevel.REQUEST:
            self.request = data
        metadata = document.get("metadata")
        if isinstance(metadata, dict):
            name, namespace = metadata.get("name"), metadata.get("namespace")
            self.name = name if isinstance(name, str) else ""
            self.namespace = namespace if isinstance(namespace, str) else ""

    def patched(self, patch: Any, data: bytes) -> None:
        """Called with the patch of a request, and its text, which is YAML for server-side apply."""
        if self.level >= AuditLevel.REQUEST:
            self.request = data if data[:1] in (b"{", b"[") else _encode(patch)


_STATUS_HEAD = b'{"kind":"Status"'


def _audit_id(given: bytes | None) -> str:
    if given and len(given) <= _LONGEST_ID and given.isascii():
        return given.decode()
    # A version 4 UUID. It need not be unpredictable, and this is four times as fast as `uuid.uuid4`.
    text = f"{random.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"


class AuditStage:
    """One event in the making: a record at one of its stages."""

    __slots__ = ("annotations", "at", "record", "response", "stage", "status")

    def __init__(self, record: AuditRecord, stage: str, at: float) -> None:
        self.record = record
        self.stage = stage
        self.at = at
        self.status = record.status
        self.response = record.response
        self.annotations = record.annotations if stage in (COMPLETE, PANIC) else dict(record.annotations)


class Auditor:
    def __init__(self, policy: AuditPolicy, settings: AuditLogSettings) -> None:
        self._policy = policy
        self.log: AuditLog[AuditStage] = AuditLog(settings, event_line)
        self.recorded = 0

    def begin(self, exchange: ApiExchange, user: User | None, info: RequestInfo | None) -> AuditRecord | None:
        """Called as soon as the user is known; None is for those who failed to authenticate."""
        verb = info.verb if info is not None and info.verb else exchange.method.lower()
        decision = self._policy.decide(user, verb, info, exchange.path)
        if decision.level is AuditLevel.NONE:
            return None
        record = AuditRecord(self, decision, user, verb, info, exchange)
        if RECEIVED not in decision.omitted and user is not None:
            self._emit(record, RECEIVED, record.received)
        return record

    def started(self, record: AuditRecord) -> None:
        """Called when the head of a stream has been sent."""
        if STARTED not in record.decision.omitted:
            self._emit(record, STARTED, time.time())

    def complete(self, record: AuditRecord, *, panic: bool = False) -> None:
        """As kube-apiserver, a request whose authentication failed ends with its first response."""
        stage = PANIC if panic else COMPLETE if record.user is not None else STARTED
        if stage not in record.decision.omitted:
            self._emit(record, stage, time.time())

    def _emit(self, record: AuditRecord, stage: str, at: float) -> None:
        self.recorded += 1
        self.log.add(AuditStage(record, stage, at))


def event_line(stage: AuditStage) -> bytes:
    """The JSON of an event, with its fields in the order of kube-apiserver."""
    record = stage.record
    event: Document = {
        "kind": "Event",
        "apiVersion": API_VERSION,
        "level": LEVEL_NAMES[record.level],
        "auditID": record.id,
        "stage": stage.stage,
        "requestURI": _uri(*record.uri),
        "verb": record.verb,
        "user": _user(record.user),
    }
    if record.impersonated is not None:
        event["impersonatedUser"] = _user(record.impersonated)
    event["sourceIPs"] = [record.source] if record.source else []
    if record.agent:
        event["userAgent"] = record.agent.decode("latin-1")
    if record.info is not None:
        event["objectRef"] = _reference(record, received=stage.stage == RECEIVED)
    if stage.stage != RECEIVED:
        event["responseStatus"] = _status(stage)
        omit = record.decision.omit_managed_fields
        if record.level >= AuditLevel.REQUEST and record.request is not None:
            event["requestObject"] = _object(record.request, omit)
        if record.level >= AuditLevel.REQUEST_RESPONSE and stage.response is not None:
            event["responseObject"] = _object(stage.response, omit)
    event["requestReceivedTimestamp"] = format_micro_time(record.received)
    event["stageTimestamp"] = format_micro_time(stage.at)
    if stage.annotations:
        event["annotations"] = stage.annotations
    return _encode(event) + b"\n"


def _uri(path: str, query: bytes) -> str:
    return f"{path}?{query.decode('latin-1')}" if query else path


def _user(user: User | None) -> Document:
    if user is None:
        return {}
    shown: Document = {"username": user.name}
    if user.uid:
        shown["uid"] = user.uid
    if user.groups:
        shown["groups"] = user.groups
    if user.extra:
        shown["extra"] = user.extra
    return shown


def _reference(record: AuditRecord, *, received: bool) -> Document:
    info = record.info
    assert info is not None
    known = not received
    fields = {
        "resource": info.plural,
        "namespace": info.namespace or (record.namespace if known else ""),
        "name": info.name or (record.name if known else ""),
        "apiGroup": info.group,
        "apiVersion": info.version,
        "subresource": info.subresource,
    }
    return {name: value for name, value in fields.items() if value}


def _status(stage: AuditStage) -> Document:
    """The Status of the response; of other responses only the code is known."""
    answer: Any = None
    if stage.response is not None and stage.response.startswith(_STATUS_HEAD):
        answer = _decode(stage.response)
    shown: Document = {"metadata": {}}
    if isinstance(answer, dict):
        shown |= {name: answer[name] for name in ("status", "message", "reason", "details") if name in answer}
    shown["code"] = stage.status
    return shown


def _object(data: bytes, omit_managed_fields: bool) -> Any:
    try:
        if not omit_managed_fields or b'"managedFields"' not in data:
            return msgspec.Raw(msgspec.json.format(data, indent=-1))  # on one line
        document = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    for one in (document, *(document.get("items") or ())) if isinstance(document, dict) else ():
        if isinstance(one, dict) and isinstance(one.get("metadata"), dict):
            one["metadata"].pop("managedFields", None)
    return document
