"""What a snapshot lacks: which answers that makes unsafe, and a safe reading of what is there. Pure.

Objects refer to others by owner references, labels and statuses. Where such an object is missing, the workload is taken
to be up to date: its ReplicaSet or ControllerRevision is made again from its template, with the name and uid that its
pods know. A snapshot that `wharf snapshot` took says itself which kinds it holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import msgspec

from wharfinger.api.manifests import Manifest, Source
from wharfinger.api.object_meta import controller_document, controller_of
from wharfinger.api.registry import Document, Registry
from wharfinger.api.selectors import LabelSelector, compile_label_selector, matches
from wharfinger.api.wording import counted
from wharfinger.controllers.template_hashes import POD_TEMPLATE_HASH, REVISION_HASH
from wharfinger.system import ordered_systems

REVISION = "deployment.kubernetes.io/revision"
_HISTORY_HASH = "controller.kubernetes.io/hash"
_UNKNOWN_TEMPLATE = "wharfinger.dev/template-not-in-snapshot"

_UNSAFE = {
    "PodDisruptionBudget": "drains and preemption may take pods that a budget protects",
    "PriorityClass": "new pods of classes that no pod of the snapshot has are refused",
    "ResourceQuota": "new pods are counted against no quota",
    "Namespace": "affinities and policies that select namespaces by label find none",
}
"""What is not safe to say if a snapshot has no object of a kind, and does not say that the cluster has none either."""


class Completeness(msgspec.Struct):
    """`lacking` has a line for each thing that is missing; `added` the objects that stand in for missing ones."""

    lacking: list[str] = msgspec.field(default_factory=list)
    added: list[Manifest] = msgspec.field(default_factory=list)
    unseen_kinds: frozenset[str] = frozenset()


def completeness(manifests: Sequence[Manifest], registry: Registry, *, taken: bool = False) -> Completeness:
    """`taken`: the snapshot says that it holds all kinds."""
    stored = [each for each in manifests if (each.outline.get("metadata") or {}).get("uid")]
    if not stored:
        return Completeness()
    return _Check(stored, registry, taken).result()


class _Check:
    def __init__(self, manifests: Sequence[Manifest], registry: Registry, taken: bool) -> None:
        self._registry = registry
        self._taken = taken
        documents = [each.outline for each in manifests]
        self._kinds = Counter(str(document.get("kind")) for document in documents)
        self._uids = {str(document["metadata"]["uid"]) for document in documents}
        self._documents = documents
        self._owned: dict[str, list[Document]] = {}  # outlines by uid of the controller
        missing: dict[str, list[Manifest]] = {}
        for manifest, document in zip(manifests, documents):
            owner = controller_of(document)
            if owner is not None:
                uid = str(owner.get("uid"))
                self._owned.setdefault(uid, []).append(document)
                if uid not in self._uids:
                    missing.setdefault(uid, []).append(manifest)
        self._pods_of_missing_sets = _pods_of_missing_sets(missing)
        self._found = Completeness()

    def result(self) -> Completeness:
        added: list[Document] = []
        rebuilt: Counter[str] = Counter()
        for document in self._documents:
            made = self._rebuild(document)
            rebuilt[str(document.get("kind"))] += bool(made)
            added += made
        source = Source("objects that the snapshot lacks", 1, 1)
        self._found.added = [Manifest(document, source) for document in added]
        self._uids |= {document["metadata"]["uid"] for document in added}
        self._missing_history(rebuilt)
        self._missing_owners()
        if not self._taken:
            self._missing_kinds()
        return self._found

    # -- objects that are made again

    def _rebuild(self, document: Document) -> list[Document]:
        rebuild = {
            "Deployment": self._replica_sets,
            "StatefulSet": self._stateful_revisions,
            "DaemonSet": self._daemon_revisions,
        }.get(str(document.get("kind")))
        return [] if rebuild is None else list(rebuild(self._defaulted(document)))

    def _defaulted(self, document: Document) -> Document:
        """The workload as it will be stored, so that its template and that of a revision are equal."""
        resource = self._registry.resource_of(document)
        default = None if resource is None else self._registry.of_resource(resource).default
        if default is not None:
            document = deepcopy(document)
            default(document)
        return document

    def _replica_sets(self, deployment: Document) -> Iterable[Document]:
        """The ReplicaSets whose pods are there, newest first: only the newest is known to have the present template."""
        metadata, spec = deployment["metadata"], deployment.get("spec") or {}
        namespace = metadata.get("namespace")
        selector = compile_label_selector(msgspec.convert(spec.get("selector") or {}, LabelSelector))
        missing: dict[tuple[str, str], list[Document]] = {}
        for pod in self._pods_of_missing_sets.get((str(namespace), str(metadata["name"])), ()):
            owner, labels = controller_of(pod) or {}, pod["metadata"].get("labels") or {}
            if matches(selector, labels):
                missing.setdefault((str(owner.get("name")), str(owner.get("uid"))), []).append(pod)
        present = any(each.get("kind") == "ReplicaSet" for each in self._owned.get(str(metadata["uid"]), ()))
        ordered = sorted(missing.items(), key=lambda item: _created(item[1]), reverse=True)
        for index, ((name, uid), pods) in enumerate(ordered):
            labels = {POD_TEMPLATE_HASH: name.removeprefix(f"{metadata['name']}-")}
            current = index == 0 and not present
            replicas = spec.get("replicas", 1) if current and len(ordered) == 1 else len(pods)
            template = _labelled(spec.get("template") or {}, labels)
            if not current:
                template = _marked(template, name)
            yield {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "uid": uid,
                    "creationTimestamp": _created(pods),
                    "labels": (template.get("metadata") or {}).get("labels") or {},
                    "annotations": {
                        REVISION: (metadata.get("annotations") or {}).get(REVISION, "1") if current else "0"
                    },
                    "ownerReferences": [_controller("apps/v1", "Deployment", metadata)],
                },
                "spec": {
                    "replicas": replicas,
                    "minReadySeconds": spec.get("minReadySeconds", 0),
                    "selector": _selecting(spec.get("selector") or {}, labels),
                    "template": template,
                },
                "status": _replica_status(pods),
            }

    def _stateful_revisions(self, workload: Document) -> Iterable[Document]:
        if self._has_history(workload):
            return
        status = workload.get("status") or {}
        pods = self._owned.get(str(workload["metadata"]["uid"]), ())
        worn = [str((pod["metadata"].get("labels") or {}).get(REVISION_HASH) or "") for pod in pods]
        update = status.get("updateRevision") or next(filter(None, worn), "")
        names = [name for name in dict.fromkeys([status.get("currentRevision"), *worn]) if name and name != update]
        for number, name in enumerate([*names, update] if update else names, 1):
            digest = name.removeprefix(f"{workload['metadata']['name']}-")
            yield _revision(workload, name, {_HISTORY_HASH: digest}, number, current=name == update)

    def _daemon_revisions(self, workload: Document) -> Iterable[Document]:
        if self._has_history(workload):
            return
        pods = self._owned.get(str(workload["metadata"]["uid"]), ())
        by_hash: dict[str, list[Document]] = {}
        for pod in pods:
            by_hash.setdefault(str((pod["metadata"].get("labels") or {}).get(REVISION_HASH) or ""), []).append(pod)
        by_hash.pop("", None)
        hashes = sorted(by_hash, key=lambda each: _created(by_hash[each]))
        for number, digest in enumerate(hashes, 1):
            name = f"{workload['metadata']['name']}-{digest}"
            yield _revision(workload, name, {REVISION_HASH: digest}, number, current=digest == hashes[-1])

    def _has_history(self, workload: Document) -> bool:
        owned = self._owned.get(str(workload["metadata"]["uid"]), ())
        return any(each.get("kind") == "ControllerRevision" for each in owned)

    # -- what is missing

    def _missing_history(self, rebuilt: Mapping[str, int]) -> None:
        for kind, history in (
            ("Deployment", "ReplicaSets"),
            ("StatefulSet", "ControllerRevisions"),
            ("DaemonSet", "ControllerRevisions"),
        ):
            if rebuilt.get(kind):
                what = counted(rebuilt[kind], kind)
                self._found.lacking.append(f"the {history} of {what}: taken to be up to date, with the pods they have")

    def _missing_owners(self) -> None:
        missing: Counter[str] = Counter()
        for uid, owned in self._owned.items():
            if uid not in self._uids:
                missing[str((controller_of(owned[0]) or {}).get("kind"))] += len(owned)
        for kind, number in sorted(missing.items()):
            if kind == "Node":
                continue  # static pods
            what = counted(number, "object")
            self._found.lacking.append(f"the {kind} of {what}: they stay as they are, and are not made again")

    def _missing_kinds(self) -> None:
        annotations = {
            name
            for document in self._documents
            if document.get("kind") == "Pod"
            for name in document["metadata"].get("annotations") or ()
        }
        unsafe = dict(_UNSAFE)
        for system in ordered_systems():
            unsafe |= system.report().lacking(annotations)
        unseen = {kind: why for kind, why in unsafe.items() if not self._kinds[kind]}
        self._found.unseen_kinds = frozenset(unseen)
        self._found.lacking += [f"{kind}: {why}" for kind, why in unseen.items()]
        claims = sum(_uses_claims(document) for document in self._documents)
        if claims and not self._kinds["PersistentVolumeClaim"]:
            what = counted(claims, "pod")
            self._found.lacking.append(f"the volume claims of {what}: they cannot be placed anew")


def _pods_of_missing_sets(missing: Mapping[str, Sequence[Manifest]]) -> dict[tuple[str, str], list[Document]]:
    """Of objects by their missing controllers: pods of ReplicaSets, by namespace and name of the Deployment after which
    these are named."""
    found: dict[tuple[str, str], list[Document]] = {}
    for owned in missing.values():
        for pod in owned:
            outline = pod.outline
            owner, metadata = controller_of(outline) or {}, outline["metadata"]
            suffix = f"-{(metadata.get('labels') or {}).get(POD_TEMPLATE_HASH)}"
            name = str(owner.get("name"))
            if (outline.get("kind"), owner.get("kind")) == ("Pod", "ReplicaSet") and name.endswith(suffix):
                key = (str(metadata.get("namespace")), name.removesuffix(suffix))
                found.setdefault(key, []).append(pod.document)
    return found


def _created(pods: Iterable[Document]) -> str:
    return max((str(pod["metadata"].get("creationTimestamp") or "") for pod in pods), default="")


def _uses_claims(document: Document) -> bool:
    volumes = (document.get("spec") or {}).get("volumes") if document.get("kind") == "Pod" else None
    return any(volume.get("persistentVolumeClaim") for volume in volumes or ())


def _controller(api_version: str, kind: str, metadata: Mapping[str, Any]) -> Document:
    return controller_document(api_version, kind, metadata["name"], metadata["uid"])


def _labelled(template: Document, labels: Mapping[str, str]) -> Document:
    metadata = template.get("metadata") or {}
    return {**template, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}}}


def _marked(template: Document, name: str) -> Document:
    """A template that differs from the present one, as the unknown one of an older revision does."""
    metadata = template.get("metadata") or {}
    annotations = {**(metadata.get("annotations") or {}), _UNKNOWN_TEMPLATE: name}
    return {**template, "metadata": {**metadata, "annotations": annotations}}


def _selecting(selector: Document, labels: Mapping[str, str]) -> Document:
    return {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **labels}}


def _replica_status(pods: Sequence[Document]) -> Document:
    ready = sum(
        any(each.get("type") == "Ready" and each.get("status") == "True" for each in _conditions(pod)) for pod in pods
    )
    counts = {"fullyLabeledReplicas": len(pods), "readyReplicas": ready, "availableReplicas": ready}
    return {"replicas": len(pods), **{name: number for name, number in counts.items() if number}}


def _conditions(pod: Document) -> Iterable[Document]:
    return (pod.get("status") or {}).get("conditions") or ()


def _revision(workload: Document, name: str, labels: Mapping[str, str], number: int, *, current: bool) -> Document:
    metadata = workload["metadata"]
    template = (workload.get("spec") or {}).get("template") or {}
    if not current:
        template = _marked(template, name)
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": name,
            "namespace": metadata.get("namespace"),
            "uid": f"{metadata['uid']}-{name}",
            "creationTimestamp": metadata.get("creationTimestamp"),
            "labels": {**((template.get("metadata") or {}).get("labels") or {}), **labels},
            "ownerReferences": [_controller("apps/v1", str(workload["kind"]), metadata)],
        },
        "data": {"spec": {"template": {**template, "$patch": "replace"}}},
        "revision": number,
    }
