"""Certificate signing requests."""

from __future__ import annotations

from wharfinger.api.columns.certificates import REQUEST_COLUMNS
from wharfinger.api.defaults.certificates import keep_decisions, keep_request, prepare_request
from wharfinger.api.defaults.walk import typed
from wharfinger.api.registry import Kind
from wharfinger.api.validation.certificates import request_rules
from wharfinger.api.validation.common import checked

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

KINDS = (CERTIFICATE_SIGNING_REQUEST,)
