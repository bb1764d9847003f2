"""Warnings about pods and kinds with pod templates."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.api.names import dns_label
from wharfinger.api.registry import Document
from wharfinger.api.warnings.common import fraction_warnings
from wharfinger.api.warnings.pods import pod_spec_warnings

_MANY_COMPLETIONS, _MANY_PODS = 100_000, 10_000
_UNTRACKED = (
    "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might "
    "not be able to track completedIndexes when a big number of indexes fail"
)


def pod_warnings(new: Document, old: Document | None) -> Iterator[str]:
    if old is not None:
        return  # most updates of pods are made by components
    where = "metadata.name: this is used in the Pod's hostname"
    yield from _name_warnings(new, where)
    yield from pod_spec_warnings(new, "")


def template_warnings(new: Document, old: Document | None) -> Iterator[str]:
    if _changed(new, old):
        yield from pod_spec_warnings((new.get("spec") or {}).get("template"), "spec.template")


def named_template_warnings(new: Document, old: Document | None) -> Iterator[str]:
    if old is None:
        yield from _name_warnings(new, "metadata.name: this is used in Pod names and hostnames")
    yield from template_warnings(new, old)


def pod_template_warnings(new: Document, old: Document | None) -> Iterator[str]:
    if _changed(new, old):
        yield from pod_spec_warnings(new.get("template"), "template")


def stateful_set_warnings(new: Document, old: Document | None) -> Iterator[str]:
    yield from template_warnings(new, old)
    spec = new.get("spec") or {}
    part = "" if old is None else ".Spec"
    for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
        resources = (claim.get("spec") or {}).get("resources") or {}
        for kind in ("requests", "limits"):
            path = f"spec.volumeClaimTemplates[{index}]{part}.resources.{kind}"
            yield from fraction_warnings(resources.get(kind), ("storage",), path)
    if (spec.get("revisionHistoryLimit") or 0) < 0:
        yield "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"


def job_warnings(new: Document, old: Document | None) -> Iterator[str]:
    if old is None:
        yield from _name_warnings(new, "metadata.name: this is used in Pod names and hostnames")
    if _changed(new, old):
        yield from _job_spec_warnings(new.get("spec") or {}, "spec")


def cron_job_warnings(new: Document, old: Document | None) -> Iterator[str]:
    spec = new.get("spec") or {}
    if old is None:
        yield from _name_warnings(new, "metadata.name: this is used in Pod names and hostnames")
    if _changed(new, old):
        yield from _job_spec_warnings((spec.get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec")
    if old is not None and "TZ" in (spec.get("schedule") or ""):
        yield (
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see "
            "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
        )


def _job_spec_warnings(spec: Document, path: str) -> Iterator[str]:
    many = (spec.get("completions") or 0) > _MANY_COMPLETIONS and (spec.get("parallelism") or 0) > _MANY_PODS
    if spec.get("completionMode") == "Indexed" and many:
        yield f"{path}: {_UNTRACKED}"
    yield from pod_spec_warnings(spec.get("template"), f"{path}.template")


def _changed(new: Document, old: Document | None) -> bool:
    """Whether the spec changed; warnings are not repeated for changes of metadata."""
    return old is None or new["metadata"].get("generation") != old["metadata"].get("generation")


def _name_warnings(new: Document, where: str) -> Iterator[str]:
    if faults := dns_label(new["metadata"].get("name", "")):
        surprise = "which can result in surprising behavior; a DNS label is recommended"
        yield f"{where}, {surprise}: [{' '.join(faults)}]"
