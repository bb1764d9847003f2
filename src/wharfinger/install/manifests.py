"""The manifests that a cluster needs to run the chosen components, for `kubectl apply --server-side -f -`.

Pure. The webhook configurations are printed without webhooks: the webhook adds them when it is ready, so that
requests never wait for a program that is still starting, and applying again removes nothing.
"""

from __future__ import annotations

import hashlib

import msgspec

from wharfinger.api.configuration import API_VERSION, KIND, PUBLISHED_KEY, PUBLISHED_NAME
from wharfinger.api.registry import Document, Registry
from wharfinger.api.schema.crds import crd
from wharfinger.install.access import access, flow_schemas
from wharfinger.install.components import GRAFANA
from wharfinger.install.grafana import grafana_dashboards
from wharfinger.install.options import NAME, InstallOptions, full_name, labelled
from wharfinger.install.workloads import budget, certificate, deployment, network_policy, service
from wharfinger.system import cluster_configuration

POD_SECURITY = {
    f"pod-security.kubernetes.io/{mode}{more}": value
    for mode in ("enforce", "audit", "warn")
    for more, value in (("", "restricted"), ("-version", "latest"))
}


def manifests(options: InstallOptions, registry: Registry) -> list[Document]:
    """All manifests, each after those it depends on."""
    made = [_namespace(options)] if options.own_namespace else []
    made += definitions(options, registry)
    for component in options.components:
        rights = component.objects
        made += [each for each in rights if (each["kind"], each["metadata"]["name"]) not in options.taken_over]
    configuration = _configuration(options)
    made.append(configuration)
    if GRAFANA in options.components:
        made += map(labelled, grafana_dashboards(options.namespace))
    for process in options.processes:
        made += access(process, options)
    made += flow_schemas(options) if options.processes else []
    if "webhook" in options.processes:
        made += [service("webhook", options), *_webhook_configurations()]
        made += [certificate(options)] if options.issuer else []
    if "dashboard" in options.processes:
        made.append(service("dashboard", options))
    config_hash = hashlib.sha256(configuration["data"][PUBLISHED_KEY].encode()).hexdigest()[:16]
    for process in options.processes:
        made += [deployment(process, options, config_hash), budget(process, options), network_policy(process, options)]
    return made


def _namespace(options: InstallOptions) -> Document:
    document: Document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": options.namespace}}
    return labelled(document, **POD_SECURITY)


def definitions(options: InstallOptions, registry: Registry) -> list[Document]:
    """The CustomResourceDefinitions, except those that others installed."""
    found = []
    for component in options.components:
        for group, plural in component.kinds:
            kind = registry.of_plural(group, plural)
            if kind is not None and f"{plural}.{group}" not in options.foreign:
                found.append(labelled(crd(kind)))
    return found


def _configuration(options: InstallOptions) -> Document:
    scheduler = ""
    if "scheduler" in options.processes:
        scheduler = f"system:serviceaccount:{options.namespace}:{full_name('scheduler')}"
    document = cluster_configuration(
        {"apiVersion": API_VERSION, "kind": KIND, **options.configuration},
        enforce=options.enforce,
        scheduler=scheduler,
    )
    text = msgspec.yaml.encode(document).decode()
    metadata = {"name": PUBLISHED_NAME, "namespace": options.namespace}
    return labelled({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {PUBLISHED_KEY: text}})


def _webhook_configurations() -> list[Document]:
    version = "admissionregistration.k8s.io/v1"
    return [
        labelled({"apiVersion": version, "kind": kind, "metadata": {"name": NAME}})
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    ]
