"""Writes the parts of the Helm chart that follow from the manifests of `wharf install`: `make chart`.

The manifests are made once with everything, with placeholders where the chart has values, and once for each component
alone, with those that it needs. What a component does not bring gets a condition. `--check` writes nothing and ends with 1 where the chart is
out of date. Values, their schema, the configuration and the notes are written by hand.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import wharfinger
from wharfinger.api.configuration import PUBLISHED_NAME
from wharfinger.api.kinds import registry
from wharfinger.install.components import chosen, components
from wharfinger.install.manifests import manifests
from wharfinger.install.options import InstallOptions
from wharfinger.install.workloads import CONFIG_HASH
from wharfinger.system import ENABLED, ordered_systems

CHART = Path(__file__).resolve().parents[1] / "charts" / "wharfinger"
REPLICAS = 424242
VALUES = {  # placeholder: expression
    "@namespace@": ".Release.Namespace",
    "@image@": 'include "wharfinger.image" .',
    "@schedulerNames@": '.Values.schedulerNames | join ","',
    "@scheduledNodes@": ".Values.scheduledNodes",
    "@issuerKind@": ".Values.certManager.issuer.kind",
    "@issuerName@": ".Values.certManager.issuer.name",
}
OPTIONAL = {  # elements of lists that are there only with a value
    "--node-selector": ".Values.scheduledNodes",
    "@scheduledNodes@": ".Values.scheduledNodes",
}
ISSUER = ".Values.certManager.issuer.name"
NODE_SELECTOR = "@podNodeSelector@"
FILES = {  # where documents of a kind go
    "Namespace": "namespace",
    "CustomResourceDefinition": "definitions",
    "ConfigMap": "dashboards",
    "Deployment": "workloads",
    "PodDisruptionBudget": "workloads",
    "NetworkPolicy": "workloads",
    "Service": "webhook-and-services",
    "MutatingWebhookConfiguration": "webhook-and-services",
    "ValidatingWebhookConfiguration": "webhook-and-services",
    "Certificate": "webhook-and-services",
}
ELSEWHERE = "access"
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_WORDS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")  # not strings in YAML without quotes

Key = tuple[str, str, str]
Documents = dict[Key, dict[str, Any]]


def options(names: list[str], *, issuer: bool) -> InstallOptions:
    return InstallOptions(
        chosen(names),
        namespace="@namespace@",
        image="@image@",
        replicas=REPLICAS,
        scheduler_names="@schedulerNames@",
        node_selector="@scheduledNodes@",
        pod_node_selector={NODE_SELECTOR: ""},
        issuer="@issuerKind@/@issuerName@" if issuer else "",
    )


def documents(names: list[str], *, issuer: bool) -> Documents:
    found = manifests(options(names, issuer=issuer), registry())
    return {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in found}


def fits(part: Any, whole: Any) -> bool:
    """Whether `part` is `whole` with some elements of lists left out."""
    if isinstance(whole, dict) and isinstance(part, dict):
        return part.keys() == whole.keys() and all(fits(part[key], whole[key]) for key in whole)
    if isinstance(whole, list) and isinstance(part, list):
        return match(part, whole) is not None
    if isinstance(whole, str) and isinstance(part, str) and "," in whole:
        return match(part.split(",") if part else [], whole.split(",")) is not None
    return bool(part == whole)


def match(part: list[Any], whole: list[Any]) -> list[Any] | None:
    """For each element of `whole` that of `part` which fits it, or None; None if `part` has something else. Equal elements
    are preferred to those that fit."""

    def place(number: int, first: int) -> list[int] | None:
        if number == len(part):
            return []
        element = part[number]
        fitting = [at for at in range(first, len(whole)) if fits(element, whole[at])]
        for at in sorted(fitting, key=lambda at: whole[at] != element):
            if (rest := place(number + 1, at + 1)) is not None:
                return [at, *rest]
        return None

    places = place(0, 0)
    if places is None:
        return None
    found: list[Any] = [None] * len(whole)
    for element, at in zip(part, places, strict=True):
        found[at] = element
    return found


class Template:
    """The lines of one document. `alone` has the document of each component that brings it."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._process = ""
        self.lines: list[str] = []

    def document(self, whole: dict[str, Any], alone: dict[str, Any]) -> list[str]:
        if self._kind == "Deployment":
            self._process = whole["spec"]["template"]["spec"]["containers"][0]["name"]
        if self._kind == "CustomResourceDefinition":
            # Deleting a definition deletes all objects of users: Helm leaves that to the administrator.
            keep = {"helm.sh/resource-policy": "keep"}
            whole = {**whole, "metadata": {**whole["metadata"], "annotations": keep}}
            alone = dict.fromkeys(alone, whole)
        self._mapping(whole, alone, "")
        return self.lines

    def _mapping(self, whole: dict[str, Any], alone: dict[str, Any], indent: str) -> None:
        for key, value in whole.items():
            versions = {name: each[key] for name, each in alone.items()}
            if key == CONFIG_HASH:
                self._line(
                    indent,
                    f'{_scalar(key)}: {{{{ include "wharfinger.configuration" . | sha256sum | trunc 16 | quote }}}}',
                )
            elif key == "value" and whole.get("name") == ENABLED:
                self._line(indent, 'value: {{ include "wharfinger.systems" . | quote }}')
            elif key == "nodeSelector" and NODE_SELECTOR in value:
                self._line(indent, "{{- with .Values.nodeSelector }}")
                self._line(indent, f"nodeSelector: {{{{- toYaml . | nindent {len(indent) + 2} }}}}")
                self._line(indent, "{{- end }}")
            elif key == "resources" and self._kind == "Deployment":
                self._resources(value, indent)
            elif isinstance(value, dict | list) and value:
                self._line(indent, f"{_scalar(key)}:")
                self._nested(value, versions, indent + "  " * isinstance(value, dict))
            else:
                self._line(indent, f"{_scalar(key)}: {_value(value, versions)}")

    def _resources(self, shipped: Any, indent: str) -> None:
        """Those of the values, over the shipped ones."""
        given = f'index .Values.resources "{self._process}" | default dict'
        text = json.dumps(shipped, separators=(",", ":"))
        merged = f"mergeOverwrite (fromJson `{text}`) ({given})"
        self._line(indent, f"resources: {{{{- toYaml ({merged}) | nindent {len(indent) + 2} }}}}")

    def _nested(self, value: Any, versions: dict[str, Any], indent: str) -> None:
        if isinstance(value, dict):
            self._mapping(value, versions, indent)
            return
        matched = {name: match(each, value) for name, each in versions.items()}
        if wrong := [name for name, found in matched.items() if found is None]:
            raise SystemExit(f"{self._kind}: the list of {wrong[0]} is not a part of the whole: {value}")
        for number, element in enumerate(value):
            found = {name: each[number] for name, each in matched.items() if each and each[number] is not None}
            conditions = [condition(set(found), set(versions))]
            conditions.append(OPTIONAL.get(element, "") if isinstance(element, str) else "")
            wanted = [each for each in conditions if each]
            for each in wanted:
                self._line(indent, f"{{{{- if {each} }}}}")
            self._element(element, found, indent)
            for _ in wanted:
                self._line(indent, "{{- end }}")

    def _element(self, element: Any, found: dict[str, Any], indent: str) -> None:
        if not isinstance(element, dict | list) or not element:
            self._line(indent, f"- {_value(element, found)}")
            return
        before = len(self.lines)
        self._nested(element, found, f"{indent}  ")
        for number in range(before, len(self.lines)):
            if not self.lines[number].lstrip().startswith("{{-"):
                self.lines[number] = f"{indent}- {self.lines[number][len(indent) + 2 :]}"
                return

    def _line(self, indent: str, text: str) -> None:
        self.lines.append(indent + text)


def condition(found: set[str], possible: set[str]) -> str:
    """An expression that holds where one of these components is installed; empty if it always does."""
    if found == possible:
        return ""
    return "or " + " ".join(f'(has "{name}" $components)' for name in components() if name in found)


def _scalar(value: Any) -> str:
    if value == REPLICAS:
        return "{{ .Values.replicas }}"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    text = json.dumps(value, ensure_ascii=False)
    text = text.replace("{{", '{{ "{{" }}')
    for placeholder, expression in VALUES.items():
        text = text.replace(placeholder, f"{{{{ {expression} }}}}")
    return text


def _value(value: Any, versions: dict[str, Any]) -> str:
    """A scalar. One that is a list separated by commas may have fewer of its names."""
    if all(each == value for each in versions.values()):
        return _scalar(value)
    names = value.split(",")
    chosen = []
    for name in names:
        found = {component for component, each in versions.items() if name in each.split(",")}
        chosen.append(f'(ternary "{name}" "" ({condition(found, set()) or "true"}))')
    return f'{{{{ list {" ".join(chosen)} | compact | join "," | quote }}}}'


def templates() -> dict[str, str]:
    """The generated files of the chart by path."""
    every = list(components())
    without, with_issuer = documents(every, issuer=False), documents(every, issuer=True)
    alone = {issuer: {name: documents([name], issuer=issuer) for name in every} for issuer in (False, True)}
    files: dict[str, list[str]] = {}
    for key in dict.fromkeys([*without, *with_issuer]):
        if key[0] == "ConfigMap" and key[2] == PUBLISHED_NAME:
            continue  # written by hand
        variants = {
            issuer: list(_document(key, whole[key], alone[issuer]))
            for issuer, whole in ((False, without), (True, with_issuer))
            if key in whole
        }
        lines = _either(variants)
        if key[0] == "Namespace":
            lines = ["{{- if .Values.createNamespace }}", *lines, "{{- end }}"]
        files.setdefault(FILES.get(key[0], ELSEWHERE), []).extend(lines)
    head = '{{- $components := include "wharfinger.components" . | fromJsonArray -}}'
    made = {f"templates/{name}.yaml": "\n".join([head, *lines, ""]) for name, lines in files.items()}
    return made | {"templates/_components.tpl": _components(), "Chart.yaml": _chart()}


def _document(key: Key, whole: dict[str, Any], alone: dict[str, Documents]) -> Iterator[str]:
    found = {name: each[key] for name, each in alone.items() if key in each}
    wanted = condition(set(found), set(alone))
    if wanted:
        yield f"{{{{- if {wanted} }}}}"
    yield "---"
    yield from Template(key[0]).document(whole, found)
    if wanted:
        yield "{{- end }}"


def _either(variants: dict[bool, list[str]]) -> list[str]:
    """A document that differs with cert-manager, or is there only with or without it."""
    if variants.get(False) == variants.get(True):
        return variants[False]
    made = []
    for issuer, test in ((True, ISSUER), (False, f"not {ISSUER}")):
        if issuer in variants:
            made += [f"{{{{- if {test} }}}}", *variants[issuer], "{{- end }}"]
    return made


def _components() -> str:
    """Which components are installed: those in the values, and those that they need."""
    lines = ['{{- define "wharfinger.components" -}}', "{{- $found := list -}}"]
    for name in components():
        needed_by = [other for other, each in components().items() if name in each.needs]
        tests = " ".join(f'(has "{each}" .Values.components)' for each in ("all", name, *needed_by))
        lines.append(f'{{{{- if or {tests} }}}}{{{{- $found = append $found "{name}" }}}}{{{{- end -}}}}')
    lines += ["{{- toJson $found -}}", "{{- end -}}", "", *_systems()]
    return "\n".join(lines)


def _systems() -> Iterator[str]:
    """The systems of these components."""
    yield '{{- define "wharfinger.systems" -}}'
    yield '{{- $components := include "wharfinger.components" . | fromJsonArray -}}'
    yield "{{- $found := list -}}"
    for system in ordered_systems():
        component = system.installation().component
        test = "true" if component is None else f'has "{component.name}" $components'
        yield f'{{{{- if {test} }}}}{{{{- $found = append $found "{system.name}" }}}}{{{{- end -}}}}'
    yield '{{- join "," $found -}}'
    yield "{{- end -}}"
    yield ""


def _chart() -> str:
    return f"""apiVersion: v2
name: wharfinger
description: A scheduling control plane for Kubernetes
type: application
version: {wharfinger.__version__}
appVersion: "{wharfinger.__version__}"
kubeVersion: ">=1.32.0-0"
"""


def main() -> int:
    check = "--check" in sys.argv[1:]
    stale = 0
    for path, text in templates().items():
        file = CHART / path
        before = file.read_text() if file.exists() else ""
        if before == text:
            continue
        stale += 1
        if check:
            changes = difflib.unified_diff(before.splitlines(), text.splitlines(), str(file), "generated", lineterm="")
            print("\n".join(list(changes)[:20]))
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    if check and stale:
        print("The chart is out of date: run `make chart`.")
    return int(check and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
