"""The Scenario document: what happens when, and what is expected. It is parsed completely before anything runs;
errors have field paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from wharfinger.api.fields import FieldError, invalid, not_supported, required, wrong_type
from wharfinger.api.registry import Document, Registry, Resource
from wharfinger.api.schema.tree import schema_of
from wharfinger.api.schema.type_errors import unknown_fields
from wharfinger.api.selectors import BadSelector, Requirements, parse_label_selector
from wharfinger.api.times import BadTime, parse_duration, parse_time
from wharfinger.scenario.matchers import Matcher, matcher
from wharfinger.scenario.paths import BadPath, Path, parse_path

API_VERSION = "wharfinger.dev/v1alpha1"
KIND = "Scenario"
DEFAULT_START = "2026-01-01T00:00:00Z"
COMPONENTS = ("scheduler", "standby", "controllers", "nodes", "webhook")
REQUEST_FAULTS = (
    "lost",  # carried out, but the answer is lost
    "unsent",  # lost before it arrives
    "conflict",
    "throttled",
    "error",
    "unavailable",
    "timeout",
    "slow",  # arrives late
    "late",  # carried out at once, answered late
    "repeated",  # carried out, the answer is lost, and the client sends it again
)
WATCH_FAULTS = (
    "delay",  # events arrive late
    "gap",  # the version is too old: 410
    "disconnect",
    "bookmark",  # a bookmark, then the end of the watch
    "stale",  # the next list shows the state of `delay` ago
)


class ObjectTarget(msgspec.Struct, frozen=True):
    """One object named by kind and name."""

    resource: Resource
    namespace: str
    name: str


class Patch(msgspec.Struct, frozen=True):
    target: ObjectTarget
    merge: Document
    subresource: str = ""


class Delete(msgspec.Struct, frozen=True):
    target: ObjectTarget
    grace_period: int | None = None


class ScenarioFault(msgspec.Struct, frozen=True):
    """An injected fault; exactly one of the groups of fields is set."""

    bind: str = ""  # fail or slow
    count: int = 1
    delay: float = 0.0
    restart: str = ""  # scheduler, controllers or all
    node: str = ""
    down: bool = True
    agent: str = ""
    stopped: bool = True
    provision: str = ""  # fail: the simulated volume provisioner refuses
    request: str = ""  # one of REQUEST_FAULTS: what happens to the next requests
    watch: str = ""  # one of WATCH_FAULTS: what happens to the next events of watches
    crash: str = ""  # one of COMPONENTS: killed, and started again after `delay`
    after: int = 0  # of a crash or a pause: the number of its own writes after which it happens
    pause: str = ""  # a component that stands still for `delay`
    skew: str = ""  # a component whose clock is `delay` ahead, or with `behind`, behind; 0 ends it
    behind: bool = False
    standby: str = ""  # scheduler: a second one is started, and both take part in a leader election
    separate: str = ""  # webhook: policies are checked by a process of its own, as on a real cluster
    by: str = ""  # the component whose requests and watches are concerned; empty: all
    to: str = ""  # the kind concerned, such as pods or pods/binding; empty: all


class FieldExpectation(msgspec.Struct, frozen=True):
    path: Path
    wanted: Any
    matches: Matcher


class Expectation(msgspec.Struct, frozen=True):
    resource: Resource
    namespace: str = ""
    name: str = ""
    selector: Requirements | None = None
    selector_text: str = ""
    count: int | None = None
    absent: bool = False
    match_any: bool = False
    within: float | None = None
    fields: tuple[FieldExpectation, ...] = ()

    def describe(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        what = self.name or (f"({self.selector_text})" if self.selector_text else "*")
        return f"{self.resource.kind} {where}{what}"


class ScenarioStep(msgspec.Struct, frozen=True):
    at: float | None = None
    user: str = ""
    apply: tuple[Document, ...] = ()
    patches: tuple[Patch, ...] = ()
    deletes: tuple[Delete, ...] = ()
    faults: tuple[ScenarioFault, ...] = ()
    rejected: str | None = None
    warned: str | None = None
    expect: tuple[Expectation, ...] = ()

    @property
    def acts(self) -> bool:
        return bool(self.apply or self.patches or self.deletes or self.faults)


class Scenario(msgspec.Struct, frozen=True):
    name: str
    description: str = ""
    start: float = msgspec.field(default_factory=lambda: parse_time(DEFAULT_START))
    start_given: bool = False
    steps: tuple[ScenarioStep, ...] = ()
    invariants: tuple[str, ...] = ()  # names of what must hold after every step; see `wharf fuzz`


def parse_scenario(document: Document, registry: Registry) -> tuple[Scenario, list[FieldError]]:
    return _ScenarioParser(registry).scenario(document)


class _ScenarioParser:
    """Parses the document and collects errors; invalid parts are left out of the result."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._errors: list[FieldError] = []

    def scenario(self, document: Document) -> tuple[Scenario, list[FieldError]]:
        known = ("apiVersion", "kind", "metadata", "description", "start", "invariants", "steps")
        self._known(document, known, "")
        metadata = document.get("metadata") or {}
        start = document.get("start")
        steps = self._list(document.get("steps"), "steps")
        if "steps" not in document:
            self._errors.append(required("steps"))
        parsed = Scenario(
            name=str(metadata.get("name") or "") if isinstance(metadata, dict) else "",
            description=str(document.get("description") or ""),
            start=self._read(parse_time, str(start if start is not None else DEFAULT_START), "start", 0.0),
            start_given=start is not None,
            steps=tuple(self._step(step, f"steps[{index}]") for index, step in enumerate(steps)),
            invariants=tuple(
                self._text(name, f"invariants[{index}]")
                for index, name in enumerate(self._list(document.get("invariants"), "invariants"))
            ),
        )
        return parsed, self._errors

    def _step(self, step: Any, path: str) -> ScenarioStep:
        known = ("at", "as", "apply", "patch", "delete", "fault", "rejected", "warned", "expect", "name", "description")
        if not self._object(step, path):
            return ScenarioStep()
        self._known(step, known, path)
        applied = self._list(step.get("apply"), f"{path}.apply")
        objects = tuple(item for index, item in enumerate(applied) if self._manifest(item, f"{path}.apply[{index}]"))
        if step.get("rejected") is None:
            for index, item in enumerate(applied):
                self._strict(item, item, f"{path}.apply[{index}]")
            for target, merge, where in self._merges(step.get("patch"), f"{path}.patch"):
                self._strict(target, merge, where)
        parsed = ScenarioStep(
            at=self._duration(step.get("at"), f"{path}.at"),
            user=self._text(step.get("as"), f"{path}.as"),
            apply=objects,
            patches=tuple(self._each(step.get("patch"), f"{path}.patch", self._patch)),
            deletes=tuple(self._each(step.get("delete"), f"{path}.delete", self._delete)),
            faults=tuple(self._each(step.get("fault"), f"{path}.fault", self._fault)),
            rejected=None if step.get("rejected") is None else self._text(step["rejected"], f"{path}.rejected"),
            warned=None if step.get("warned") is None else self._text(step["warned"], f"{path}.warned"),
            expect=tuple(self._each(step.get("expect"), f"{path}.expect", self._expectation)),
        )
        if (parsed.rejected is not None or parsed.warned is not None) and not step.keys() & {
            "apply",
            "patch",
            "delete",
        }:
            detail = "needs apply, patch or delete in the same step: there is no request to refuse or warn of"
            self._errors.append(FieldError(path, "FieldValueInvalid", f"Invalid value: {detail}"))
        return parsed

    def _strict(self, identity: Any, document: Any, path: str) -> None:
        """Unknown fields of an object or of a merge patch, if the kind is known."""
        resource = self._registry.resource_of(identity) if isinstance(identity, dict) else None
        if resource is None and isinstance(identity, dict) and not identity.get("apiVersion"):
            known = self._registry.find(str(identity.get("kind") or ""))
            resource = None if known is None else known.storage
        if resource is None or not isinstance(document, dict):
            return
        schema = schema_of(self._registry.of_resource(resource), resource.version)
        for each in unknown_fields(schema, document):
            self._errors.append(FieldError(f"{path}.{each.path}", "FieldValueForbidden", each.message))

    @staticmethod
    def _merges(value: Any, path: str) -> Iterator[tuple[Any, Any, str]]:
        """The patches of a step: what is patched, the merge patch, and its path."""
        if isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, dict):
                    yield item, item.get("merge"), f"{path}[{index}].merge"
        elif isinstance(value, dict):
            yield value, value.get("merge"), f"{path}.merge"

    def _each(self, value: Any, path: str, read: Callable[[Any, str], Any]) -> list[Any]:
        """One item or a list of them."""
        if value is None:
            return []
        if isinstance(value, list):
            items = [read(item, f"{path}[{index}]") for index, item in enumerate(value)]
        else:
            items = [read(value, path)]
        return [item for item in items if item is not None]

    def _manifest(self, item: Any, path: str) -> bool:
        if not self._object(item, path):
            return False
        if not item.get("kind"):
            self._errors.append(required(f"{path}.kind"))
            return False
        if not item.get("apiVersion"):
            self._errors.append(required(f"{path}.apiVersion"))
            return False
        if item.get("metadata") is not None and not self._object(item["metadata"], f"{path}.metadata"):
            return False
        return True

    def _resource(self, item: Document, path: str) -> Resource | None:
        kind = item.get("kind")
        if not isinstance(kind, str) or not kind:
            self._errors.append(required(f"{path}.kind"))
            return None
        if api_version := item.get("apiVersion"):
            found = self._registry.resource_of({"apiVersion": api_version, "kind": kind})
            if found is None:
                self._errors.append(invalid(f"{path}.kind", kind, f"no such kind in {api_version}"))
            return found
        known = self._registry.find(kind)
        if known is None:
            self._errors.append(
                invalid(f"{path}.kind", kind, "no such kind; for a kind of your own give its apiVersion too")
            )
            return None
        return known.storage

    def _target(self, item: Any, path: str, known: tuple[str, ...]) -> ObjectTarget | None:
        if not self._object(item, path):
            return None
        self._known(item, ("apiVersion", "kind", "namespace", "name", *known), path)
        resource = self._resource(item, path)
        name = self._text(item.get("name"), f"{path}.name")
        if not name:
            self._errors.append(required(f"{path}.name"))
        if resource is None or not name:
            return None
        return ObjectTarget(resource, self._namespace(item, path, resource), name)

    def _namespace(self, item: Document, path: str, resource: Resource) -> str:
        namespace = self._text(item.get("namespace"), f"{path}.namespace")
        return (namespace or "default") if resource.namespaced else ""

    def _patch(self, item: Any, path: str) -> Patch | None:
        target = self._target(item, path, ("merge", "subresource"))
        if target is None:
            return None
        if not isinstance(item.get("merge"), dict):
            self._errors.append(required(f"{path}.merge", "the merge patch to apply"))
            return None
        return Patch(target, item["merge"], self._text(item.get("subresource"), f"{path}.subresource"))

    def _delete(self, item: Any, path: str) -> Delete | None:
        target = self._target(item, path, ("gracePeriodSeconds",))
        if target is None:
            return None
        return Delete(target, self._int(item.get("gracePeriodSeconds"), f"{path}.gracePeriodSeconds"))

    def _fault(self, item: Any, path: str) -> ScenarioFault | None:
        if not self._object(item, path):
            return None
        forms = {
            "bind": ("bind", "count", "delay"),
            "restart": ("restart",),
            "node": ("node", "down"),
            "agent": ("agent", "stopped"),
            "provision": ("provision", "count"),
            "request": ("request", "by", "to", "count", "delay"),
            "watch": ("watch", "by", "to", "count", "delay"),
            "crash": ("crash", "after", "delay"),
            "pause": ("pause", "after", "delay"),
            "skew": ("skew", "delay", "behind"),
            "standby": ("standby",),
            "separate": ("separate",),
        }
        form = next((name for name in forms if name in item), None)
        if form is None:
            self._errors.append(required(path, f"one of {', '.join(forms)}"))
            return None
        self._known(item, forms[form], path)
        choices = {
            "bind": ("fail", "slow"),
            "restart": ("scheduler", "controllers", "all"),
            "provision": ("fail",),
            "request": REQUEST_FAULTS,
            "watch": WATCH_FAULTS,
            "crash": COMPONENTS,
            "pause": COMPONENTS,
            "skew": COMPONENTS,
            "standby": ("scheduler",),
            "separate": ("webhook",),
        }
        value = self._text(item[form], f"{path}.{form}")
        if form in choices and value not in choices[form]:
            self._errors.append(not_supported(f"{path}.{form}", value, choices[form]))
            return None
        count = self._int(item.get("count"), f"{path}.count")
        return ScenarioFault(
            **{form: value},
            count=1 if count is None else count,
            delay=self._duration(item.get("delay"), f"{path}.delay") or 0.0,
            down=self._bool(item.get("down"), f"{path}.down", default=True),
            stopped=self._bool(item.get("stopped"), f"{path}.stopped", default=True),
            after=self._int(item.get("after"), f"{path}.after") or 0,
            behind=self._bool(item.get("behind"), f"{path}.behind", default=False),
            by=self._component(item.get("by"), f"{path}.by"),
            to=self._text(item.get("to"), f"{path}.to"),
        )

    def _component(self, value: Any, path: str) -> str:
        name = self._text(value, path)
        if name and name not in COMPONENTS:
            self._errors.append(not_supported(path, name, COMPONENTS))
        return name

    def _expectation(self, item: Any, path: str) -> Expectation | None:
        if not self._object(item, path):
            return None
        known = ("apiVersion", "kind", "namespace", "name", "selector", "count", "absent", "match", "within", "fields")
        self._known(item, known, path)
        resource = self._resource(item, path)
        if resource is None:
            return None
        if "match" in item and item["match"] not in ("any", "every"):
            self._errors.append(not_supported(f"{path}.match", item["match"], ("any", "every")))
        name = self._text(item.get("name"), f"{path}.name")
        selector_text = self._text(item.get("selector"), f"{path}.selector")
        selector = None
        if "selector" in item:
            selector = self._read(parse_label_selector, selector_text, f"{path}.selector", ())
        namespace = self._text(item.get("namespace"), f"{path}.namespace")
        if name and resource.namespaced and not namespace:
            namespace = "default"
        fields = item.get("fields") or {}
        if not isinstance(fields, dict):
            self._errors.append(wrong_type(f"{path}.fields", fields, "object"))
            fields = {}
        return Expectation(
            resource,
            namespace if resource.namespaced else "",
            name,
            selector,
            selector_text,
            self._int(item.get("count"), f"{path}.count"),
            self._bool(item.get("absent"), f"{path}.absent", default=False),
            item.get("match") == "any",
            self._duration(item.get("within"), f"{path}.within"),
            tuple(filter(None, (self._field(key, wanted, f"{path}.fields") for key, wanted in fields.items()))),
        )

    def _field(self, key: Any, wanted: Any, path: str) -> FieldExpectation | None:
        try:
            parsed = parse_path(str(key))
        except BadPath as error:
            self._errors.append(FieldError(path, "FieldValueInvalid", str(error)))
            return None
        test, errors = matcher(wanted, f"{path}.{key}")
        self._errors += errors
        return FieldExpectation(parsed, wanted, test)

    def _known(self, item: Document, known: tuple[str, ...], path: str) -> None:
        for key in item:
            if key not in known:
                here = f"{path}.{key}" if path else str(key)
                self._errors.append(
                    FieldError(here, "FieldValueForbidden", f"unknown field; known here: {', '.join(known)}")
                )

    def _object(self, value: Any, path: str) -> bool:
        if isinstance(value, dict):
            return True
        self._errors.append(wrong_type(path, value, "object"))
        return False

    def _list(self, value: Any, path: str) -> list[Any]:
        if value is None:
            return []
        if isinstance(value, list):
            return value
        self._errors.append(wrong_type(path, value, "array"))
        return []

    def _text(self, value: Any, path: str) -> str:
        if value is None:
            return ""
        if isinstance(value, dict | list):
            self._errors.append(wrong_type(path, value, "string"))
            return ""
        return str(value)

    def _int(self, value: Any, path: str) -> int | None:
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
            return value
        self._errors.append(invalid(path, value, "must be a whole number, 0 or more"))
        return None

    def _bool(self, value: Any, path: str, *, default: bool) -> bool:
        if value is None:
            return default
        if not isinstance(value, bool):
            self._errors.append(wrong_type(path, value, "boolean"))
            return default
        return value

    def _duration(self, value: Any, path: str) -> float | None:
        if value is None:
            return None
        seconds: float = self._read(parse_duration, str(value), path, 0.0)
        if seconds < 0:
            self._errors.append(invalid(path, value, "must not be negative"))
        return seconds

    def _read(self, parse: Callable[[str], Any], text: str, path: str, fallback: Any) -> Any:
        try:
            return parse(text)
        except (BadTime, BadSelector) as error:
            self._errors.append(invalid(path, text, str(error)))
            return fallback
