"""Certificate signing requests, the certificates of pods, and bundles of trust anchors."""

from __future__ import annotations

from wharfinger.api.columns.certificates import POD_REQUEST_COLUMNS, REQUEST_COLUMNS, TRUST_BUNDLE_COLUMNS
from wharfinger.api.defaults.certificates import (
    default_pod_request,
    keep_decisions,
    keep_request,
    prepare_request,
)
from wharfinger.api.defaults.walk import typed, with_status
from wharfinger.api.registry import Kind
from wharfinger.api.validation.certificates import request_rules
from wharfinger.api.validation.common import checked
from wharfinger.api.validation.pod_certificates import pod_certificate_rules, pod_certificate_status_rules
from wharfinger.api.validation.trust_bundles import trust_bundle_rules

_VERSION, _KIND = "certificates.k8s.io/v1", "CertificateSigningRequest"


def _any_name(name: str) -> list[str]:
    return []


CERTIFICATE_SIGNING_REQUEST = Kind(
    "certificates.k8s.io", _KIND, "certificatesigningrequests", namespaced=False, short_names=("csr",), status=True,
    subresources=("approval",), generation=False, name_faults=_any_name, selectable=("spec.signerName",),
    default=typed(), prepare_create=prepare_request, prepare_update=keep_request, prepare_status=keep_decisions,
    validate=checked(_VERSION, _KIND, request_rules()),
    validate_subresource={
        "status": checked(_VERSION, _KIND, request_rules("status")),
        "approval": checked(_VERSION, _KIND, request_rules("approval")),
    },
    columns=REQUEST_COLUMNS,
    in_snapshots=False,
)  # fmt: skip

POD_CERTIFICATE_REQUEST = Kind(
    "certificates.k8s.io", "PodCertificateRequest", "podcertificaterequests", status=True, generation=False,
    unconditional_update=False, selectable=("spec.signerName", "spec.podName", "spec.nodeName"),
    default=typed(default_pod_request), prepare_create=with_status(),
    validate=checked(_VERSION, "PodCertificateRequest", pod_certificate_rules),
    validate_subresource={"status": checked(_VERSION, "PodCertificateRequest", pod_certificate_status_rules)},
    columns=POD_REQUEST_COLUMNS, in_snapshots=False,
)  # fmt: skip
CLUSTER_TRUST_BUNDLE = Kind(
    "certificates.k8s.io", "ClusterTrustBundle", "clustertrustbundles", namespaced=False, generation=False,
    unconditional_update=False, name_faults=_any_name, selectable=("spec.signerName",), default=typed(),
    validate=checked(_VERSION, "ClusterTrustBundle", trust_bundle_rules), columns=TRUST_BUNDLE_COLUMNS,
    in_snapshots=False,
)  # fmt: skip

KINDS = (CERTIFICATE_SIGNING_REQUEST, POD_CERTIFICATE_REQUEST, CLUSTER_TRUST_BUNDLE)
