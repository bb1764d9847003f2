"""Discovery documents, legacy and aggregated: which groups, versions and resources are served."""

from __future__ import annotations

import re
from functools import lru_cache

from wharfinger.api.registry import Document, Kind, Registry

# kube-apiserver's order. If two groups have the same short name, the first one wins.
_ORDER = (
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
)

# Subresources whose objects are of another kind: group, version, kind and verbs.
_OTHER_KINDS = {
    "scale": ("autoscaling", "v1", "Scale", ("get", "patch", "update")),
    "binding": ("", "v1", "Binding", ("create",)),
    "eviction": ("policy", "v1", "Eviction", ("create",)),
    "token": ("authentication.k8s.io", "v1", "TokenRequest", ("create",)),
    "exec": ("", "v1", "PodExecOptions", ("create", "get")),
    "attach": ("", "v1", "PodAttachOptions", ("create", "get")),
    "portforward": ("", "v1", "PodPortForwardOptions", ("create", "get")),
}
_SUBRESOURCE_VERBS = {"finalize": ("update",), "log": ("get",)}
CONNECTED = frozenset(("exec", "attach", "portforward", "log", "proxy"))  # no objects: streams to and from a kubelet
_PROXIED = ("create", "delete", "get", "patch", "update")


def version_priority(version: str) -> tuple[int, int, int]:
    """Sort key for the Kubernetes version order: v2, v1, v1beta1, v1alpha1."""
    match = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    if match is None:
        return (3, 0, 0)
    stage = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return (stage, -int(match[1]), -int(match[3] or 0))


class Discovery:
    """Discovery documents of a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def groups(self) -> dict[str, list[str]]:
        """All groups except the core group in order of precedence, with their versions, the preferred one first."""
        found: dict[str, set[str]] = {}
        for kind in self._registry:
            for group in (kind.group, *kind.alias_groups):
                if group:
                    found.setdefault(group, set()).update(kind.versions)
        rank = {group: position for position, group in enumerate(_ORDER)}
        ordered = sorted(found, key=lambda group: (rank.get(group, len(rank)), group))
        return {group: sorted(found[group], key=version_priority) for group in ordered}

    def serves(self, group: str, version: str) -> bool:
        return bool(self._kinds(group, version))

    def _kinds(self, group: str, version: str) -> list[Kind]:
        kinds = [
            kind for kind in self._registry if version in kind.versions and group in (kind.group, *kind.alias_groups)
        ]
        return sorted(kinds, key=lambda kind: kind.plural)

    # Legacy discovery

    def core_versions(self, server: str) -> Document:
        addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": server}]
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}

    def group_list(self) -> Document:
        return {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [self._group(*entry) for entry in self.groups().items()],
        }

    def group(self, group: str) -> Document | None:
        versions = self.groups().get(group)
        return None if versions is None else {"kind": "APIGroup", "apiVersion": "v1", **self._group(group, versions)}

    def _group(self, group: str, versions: list[str]) -> Document:
        entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
        return {"name": group, "versions": entries, "preferredVersion": entries[0]}

    def resource_list(self, group: str, version: str) -> Document | None:
        if not self.serves(group, version):
            return None
        resources: list[Document] = []
        for kind in self._kinds(group, version):
            entry: Document = {
                "name": kind.plural,
                "singularName": kind.singular or kind.kind.lower(),
                "namespaced": kind.namespaced,
                "kind": kind.kind,
                "verbs": sorted(kind.verbs),
                **_optional_names(kind, group),
            }
            resources.append(entry)
            for name, (owner, owner_version, owner_kind, verbs) in subresources(kind, group, version).items():
                entry = {
                    "name": f"{kind.plural}/{name}",
                    "singularName": "",
                    "namespaced": kind.namespaced,
                    "kind": owner_kind,
                    "verbs": sorted(verbs),
                }
                if (owner, owner_version) != (group, version):
                    entry |= {"group": owner, "version": owner_version}
                resources.append(entry)
        group_version = f"{group}/{version}" if group else version
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}

    # Aggregated discovery

    def aggregated(self, version: str, *, core: bool) -> Document:
        groups = {"": ["v1"]} if core else self.groups()
        items = [
            {
                "metadata": {"name": group} if group else {},
                "versions": [
                    {"version": served, "resources": self._aggregated_resources(group, served), "freshness": "Current"}
                    for served in versions
                ],
            }
            for group, versions in groups.items()
        ]
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": f"apidiscovery.k8s.io/{version}",
            "metadata": {},
            "items": items,
        }

    def _aggregated_resources(self, group: str, version: str) -> list[Document]:
        found: list[Document] = []
        for kind in self._kinds(group, version):
            entry: Document = {
                "resource": kind.plural,
                "responseKind": {"group": group, "version": version, "kind": kind.kind},
                "scope": "Namespaced" if kind.namespaced else "Cluster",
                "singularResource": kind.singular or kind.kind.lower(),
                "verbs": sorted(kind.verbs),
                **_optional_names(kind, group),
            }
            below = [
                {
                    "subresource": name,
                    "responseKind": {"group": owner, "version": owner_version, "kind": owner_kind},
                    "verbs": sorted(verbs),
                }
                for name, (owner, owner_version, owner_kind, verbs) in subresources(kind, group, version).items()
            ]
            if below:
                entry["subresources"] = below
            found.append(entry)
        return found


def _optional_names(kind: Kind, group: str) -> Document:
    """Short names and categories, if there are any. Our kinds have short names in one group only; kubectl would reject them
    as ambiguous otherwise."""
    names: Document = {}
    if kind.short_names and (group == kind.group or not kind.ours):
        names["shortNames"] = list(kind.short_names)
    if kind.categories:
        names["categories"] = list(kind.categories)
    return names


@lru_cache(4096)
def subresources(kind: Kind, group: str, version: str) -> dict[str, tuple[str, str, str, tuple[str, ...]]]:
    """Every subresource of a kind with the group, version and kind of its objects, and its verbs."""
    names = (*kind.subresources, *(("status",) if kind.status else ()), *(("scale",) if kind.scale else ()))
    own = (group, version, kind.kind)
    return {
        name: ("", "v1", f"{kind.kind}ProxyOptions", _PROXIED)
        if name == "proxy"
        else _OTHER_KINDS.get(name) or (*own, _SUBRESOURCE_VERBS.get(name, ("get", "patch", "update")))
        for name in sorted(set(names))
    }
