"""Validation of ClusterTrustBundles, and of the names under which pods refer to them."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.api.fields import FieldError, immutable, invalid, too_long
from wharfinger.api.names import dns_subdomain
from wharfinger.api.pem import PemBlock, pem_blocks
from wharfinger.api.registry import Document
from wharfinger.api.validation.certificates import signer_name_faults

_MOST_BYTES = 1024 * 1024
_OMITTED = "<value omitted>"


def trust_bundle_rules(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec, before = document.get("spec") or {}, (old or {}).get("spec") or {}
    signer, bundle = spec.get("signerName") or "", spec.get("trustBundle") or ""
    metadata = document.get("metadata") or {}
    if prefix := metadata.get("generateName"):
        probe = f"{prefix[:-1]}a" if prefix.endswith("-") else prefix
        yield from (invalid("metadata.generateName", prefix, fault) for fault in bundle_name_faults(probe, signer))
    if name := metadata.get("name"):
        yield from (invalid("metadata.name", name, fault) for fault in bundle_name_faults(name, signer))
    if signer:
        yield from signer_name_faults(signer, "spec.signerName")
    if old is None or bundle != (before.get("trustBundle") or ""):
        yield from _bundle_faults(bundle, "spec.trustBundle")
    if old is not None and signer != (before.get("signerName") or ""):
        yield immutable("spec.signerName", signer)


def bundle_name_faults(name: str, signer: str) -> list[str]:
    """A bundle of a signer has the name of the signer as prefix; others have no colon in their names."""
    if not signer:
        if ":" in name:
            return ['ClusterTrustBundle without signer name must not have ":" in its name']
        return dns_subdomain(name)
    prefix = signer.replace("/", ":") + ":"
    if not name.startswith(prefix):
        return [f"ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"]
    return dns_subdomain(name.removeprefix(prefix))


def _bundle_faults(bundle: str, path: str) -> Iterator[FieldError]:
    if len(bundle.encode()) > _MOST_BYTES:
        yield too_long(path, _MOST_BYTES)
        return
    places: dict[bytes, list[int]] = {}
    malformed = False
    for index, block in enumerate(pem_blocks(bundle)):
        if fault := _anchor_fault(block):
            malformed = True
            yield invalid(path, _OMITTED, f"entry {index} {fault}")
        places.setdefault(block.data, []).append(index)
    if malformed:
        return
    if not places:
        yield invalid(path, _OMITTED, "at least one trust anchor must be provided")
    for indices in places.values():
        if len(indices) > 1:
            shown = " ".join(map(str, indices))
            yield invalid(path, _OMITTED, f"duplicate trust anchor (indices [{shown}])")


def _anchor_fault(block: PemBlock) -> str:
    from cryptography import x509

    if block.type != "CERTIFICATE":
        return f"has bad block type: {block.type}"
    if block.has_headers:
        return "has PEM block headers"
    try:
        extensions = x509.load_der_x509_certificate(block.data).extensions
    except ValueError:
        return "does not parse as X.509"
    try:
        authority = extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        authority = False
    return "" if authority else "does not have the CA bit set"
