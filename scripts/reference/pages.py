"""The reference pages of the documentation, as Markdown."""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from scripts.reference.commands import CommandText, OptionText, read_command
from scripts.reference.kinds import FieldText, fields_of, our_kinds
from scripts.reference.messages import Told, reported, scheduling_reasons
from scripts.reference.metrics import MetricText, metrics

from wharfinger.api.registry import Kind

DOCS = Path(__file__).parents[2] / "docs"
_WIDTH = 120
_NOTE = "<!-- Written by `make reference` from the code. Change the code, not this page. -->"

# Pages that say more about a command.
_MORE = {
    "wharf ask": "[Simulate, explain, plan and test](simulate.md)",
    "wharf dashboard": "[The dashboard](dashboard.md)",
    "wharf fuzz": "[Fault simulation](fuzzing.md)",
    "wharf install": "[On a Kubernetes cluster](kubernetes.md)",
    "wharf node-token": "[Real nodes](real-nodes.md)",
    "wharf policy": "[Asking questions about policies](scheduling-policy.md#asking-questions)",
    "wharf policy preset": "[Shipped policies](scheduling-policy.md#shipped-policies)",
    "wharf repack": "[Repacking](repack.md)",
}
# The component that exposes the metrics of an area, and where.
_COMPONENTS = {
    "apiserver": ("API server", "`wharf up` and `wharf apiserver`, at `/metrics` of the API server"),
    "scheduler": ("Scheduler", "`wharf scheduler --metrics-port`; the names are those of kube-scheduler"),
    "systems/reservation/scheduling": ("Scheduler: reservations", "`wharf scheduler --metrics-port`"),
    "client": ("Controllers", "`wharf controllers --metrics-port` and `wharf placement --metrics-port`"),
    "systems/resource_policy/controllers": ("Controllers: resource policies", "`wharf controllers --metrics-port`"),
    "systems/placement/controllers": ("Placement", "`wharf placement --metrics-port`; the names are upstream's"),
    "webhook": ("Webhook", "`wharf webhook`, at `/metrics` of its port"),
    "systems/scheduling_policy/admission": (
        "Webhook: scheduling policies",
        "`wharf webhook`, at `/metrics` of its port",
    ),
}
_SYSTEMS = {
    "placement": "Placement",
    "reservation": "Reservation",
    "resource_class": "ResourceClass",
    "resource_policy": "ResourcePolicy",
    "scheduling_policy": "SchedulingPolicy",
}


def reference_pages() -> dict[Path, str]:
    """Every generated page with its text."""
    return {
        DOCS / "commands.md": commands_page((DOCS / "commands.md").read_text(encoding="utf-8"), read_command()),
        DOCS / "reference" / "kinds.md": kinds_page(),
        DOCS / "reference" / "metrics.md": metrics_page(metrics()),
        DOCS / "reference" / "messages.md": messages_page(),
    }


# -- commands


def commands_page(page: str, root: CommandText) -> str:
    """The page with the sections of commands written anew. What is before, between and the order of them is kept."""
    commands = {each.name: each for each in root.subcommands}
    parts = re.split(r"^(?=#{2,3} )", page, flags=re.MULTILINE)
    order: list[str] = []
    for number, part in enumerate(parts):
        name = part.partition("\n")[0].removeprefix("### ")
        if part.startswith("### wharf ") and name in commands:
            order.append(name)
            parts[number] = "\n".join(_section(commands[name], 3)) + "\n"
        elif part.startswith("### wharf "):
            parts[number] = ""  # no longer there
    missing = [name for name in commands if name not in order]
    if missing:
        raise SystemExit(f"docs/commands.md has no section for: {', '.join(missing)}; add a heading `### {missing[0]}`")
    rows = [
        f"| [`{name.removeprefix('wharf ')}`](#{_anchor(name)}) | {_markdown(commands[name].summary)} |"
        for name in order
    ]
    table = "\n".join(["| command | |", "|---|---|", *rows])
    parts[0] = re.sub(
        r"^\| command \| \|\n\|---\|---\|\n(?:\|.*\n)*", lambda _: f"{table}\n", parts[0], flags=re.MULTILINE
    )
    return "".join(parts).rstrip() + "\n"


def _section(command: CommandText, level: int) -> Iterator[str]:
    yield f"{'#' * level} {command.name}"
    yield ""
    for paragraph in (command.summary, *command.details):
        yield from (*_wrapped(_markdown(paragraph)), "")
    if more := _MORE.get(command.name):
        yield from (f"More: {more}.", "")
    yield from ("```", command.usage, "```", "")
    if command.examples:
        yield from ("```console", *(f"$ {each}" for each in command.examples), "```", "")
    yield from _option_table(command.options)
    for each in command.subcommands:
        yield from _section(each, level + 1)


def _option_table(options: tuple[OptionText, ...]) -> Iterator[str]:
    cluster = sum(map(_of_cluster, options)) == 2
    shown = [option for option in options if not (cluster and _of_cluster(option))]
    if not options:
        return
    yield from ("| option | default | |", "|---|---|---|")
    for option in shown:
        default = "required" if option.required else _default(option.default)
        value = f" {option.value}".rstrip().replace("|", r"\|")
        yield f"| `{', '.join(option.flags)}{value}` | {default} | {_cell(_markdown(option.help))} |"
    if len(shown) < len(options):
        yield "| `--kubeconfig FILE`, `--context NAME` | | see [above](#which-cluster) |"
    yield ""


def _of_cluster(option: OptionText) -> bool:
    return option.flags == ("--context",) or (option.flags == ("--kubeconfig",) and "$KUBECONFIG" in option.help)


def _default(text: str) -> str:
    return f"`{_cell(text)}`" if text and " " not in text else _cell(_markdown(text))


# -- kinds


def kinds_page() -> str:
    kinds = our_kinds()
    lines = [
        "# Kinds",
        "",
        _NOTE,
        "",
        "Every field of our kinds, as `kubectl explain` shows it. The pages of the systems say what the fields mean together.",
        "`[]` stands for each element of a list, `.*` for each value of a map.",
        "",
        "| kind | API version | plural | scope | short names |",
        "|---|---|---|---|---|",
    ]
    for kind in kinds:
        versions = ", ".join(f"`{kind.group}/{version}`" for version in kind.versions)
        scope = "namespaced" if kind.namespaced else "cluster"
        short = ", ".join(f"`{name}`" for name in kind.short_names)
        lines.append(f"| [{kind.kind}](#{kind.kind.lower()}) | {versions} | `{kind.plural}` | {scope} | {short} |")
    for kind in kinds:
        lines += ["", *_kind_section(kind)]
    return "\n".join(lines) + "\n"


def _kind_section(kind: Kind) -> Iterator[str]:
    assert kind.schema is not None
    yield from (f"## {kind.kind}", "")
    description = " ".join(kind.schema(kind.versions[0]).get("description", "").split())
    if description:
        yield from (*_wrapped(_markdown(description)), "")
    shown: set[tuple[FieldText, ...]] = set()
    for version in kind.versions:
        fields = tuple(fields_of(kind, version))
        if fields in shown:
            yield from ("", f"`{version}` has the same fields.")
            continue
        shown.add(fields)
        if len(kind.versions) > 1:
            yield from (f"`{version}`:", "")
        yield from ("| field | type | default | |", "|---|---|---|---|")
        for field in fields:
            default = "required" if field.required else _default(field.default)
            yield f"| `{field.path}` | {_cell(field.type)} | {default} | {_cell(_markdown(field.description))} |"


# -- metrics


def metrics_page(found: list[MetricText]) -> str:
    by_area: dict[str, list[MetricText]] = defaultdict(list)
    for metric in found:
        by_area[metric.area].append(metric)
    unknown = by_area.keys() - _COMPONENTS.keys()
    if unknown:
        raise SystemExit(
            f"scripts/reference/pages.py does not say which component exposes the metrics of {sorted(unknown)}"
        )
    lines = ["# Metrics", "", _NOTE, "", "All components expose their metrics in Prometheus' text format."]
    for area, (title, where) in _COMPONENTS.items():
        lines += [
            "",
            f"## {title}",
            "",
            f"Exposed by {where}.",
            "",
            "| metric | type | labels | |",
            "|---|---|---|---|",
        ]
        for metric in by_area[area]:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            lines.append(f"| `{metric.name}` | {metric.type} | {labels} | {_cell(metric.help)} |")
    return "\n".join(lines) + "\n"


# -- messages


def messages_page() -> str:
    lines = [
        "# Reasons and messages",
        "",
        _NOTE,
        "",
        *_wrapped(
            "The texts that you meet in events, conditions and the output of `wharf explain`. Words in angle brackets stand for "
            "names and numbers of the case. What to do about them is in [Troubleshooting](../troubleshooting.md)."
        ),
        "",
        "## Why a pod is not scheduled",
        "",
        *_wrapped(
            "A pod that fits nowhere has the condition `PodScheduled` with the reason `Unschedulable`, and an event "
            "`FailedScheduling`, which count the nodes by reason: `0/3 nodes are available: 2 Insufficient cpu, 1 node(s) "
            "were unschedulable.` Texts of stock plugins are those of kube-scheduler."
        ),
    ]
    for area, reasons in scheduling_reasons().items():
        lines += ["", f"### {_title(area, plugin=True)}", "", *(f"- `{_code(reason)}`" for reason in reasons)]
    lines += [
        "",
        "## Conditions and events",
        "",
        *_wrapped(
            "Each reason with its messages. A message that is passed on from somewhere else, such as an error of the API "
            "server, is not shown."
        ),
    ]
    by_area: dict[str, list[Told]] = defaultdict(list)
    for told in reported():
        by_area[told.area].append(told)
    for area, texts in sorted(by_area.items(), key=lambda item: (not item[0].startswith("systems/"), item[0])):
        lines += ["", f"### {_title(area)}", "", "| reason | in | message |", "|---|---|---|"]
        kinds: dict[tuple[str, str], list[str]] = defaultdict(list)
        for told in texts:
            kinds[told.reason, told.message].append(told.kind)
        for (reason, message), found in kinds.items():
            where = " and ".join(sorted(filter(None, found)))
            lines.append(f"| `{reason}` | {where} | {f'`{_code(message)}`' if message else ''} |")
    return "\n".join(lines) + "\n"


def _title(area: str, *, plugin: bool = False) -> str:
    first, _, name = area.partition("/")
    if first == "systems":
        return _SYSTEMS[name]
    words = "".join(word.capitalize() for word in name.split("_"))
    if plugin and first == "plugins":
        return {"Volumes": "Volume plugins", "NodeResources": "NodeResourcesFit"}.get(words, words)
    return f"{first.capitalize()}: {name.replace('_', ' ')}"


# -- text


def _code(text: str) -> str:
    return _cell(text.strip()).replace("`", "'")


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def _markdown(text: str) -> str:
    """Help text as Markdown: options and names with placeholders become code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else _plain(part) for part in parts)


def _plain(text: str) -> str:
    text = re.sub(r"(?<![\w-])(--[a-z][\w-]*(?:=\S+)?)", r"`\1`", text)
    text = re.sub(r"(?<=\s)-(?= (?:for|is) )|(?<=or )-(?=[.;,])", "`-`", text)
    text = re.sub(r"(?<![\w/`~.<])(/[a-z][\w/-]*)", r"`\1`", text)
    text = re.sub(r"(?<=such as )(\d+[smh])\b", r"`\1`", text)
    text = re.sub(r"(?<![\w`])(\$[A-Z_]+|~/[\w./]+)", r"`\1`", text)
    text = re.sub(r"<([\w-]+)>", r"&lt;\1&gt;", text)
    return text.replace("*", r"\*")


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def write(pages: dict[Path, str]) -> Iterable[Path]:
    """Writes the pages that changed, and returns them."""
    for path, text in pages.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            yield path
