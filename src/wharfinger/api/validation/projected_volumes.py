"""Validation of the projected volumes of pods, of the sources that refer to certificates and trust anchors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from wharfinger.api.fields import FieldError, forbidden, invalid, not_supported, required
from wharfinger.api.validation.certificates import signer_name_faults
from wharfinger.api.validation.containers import id_faults
from wharfinger.api.validation.pod_certificates import MIN_EXPIRATION, longest_expiration, user_annotations_faults
from wharfinger.api.validation.selectors import each, label_selector_faults
from wharfinger.api.validation.trust_bundles import bundle_name_faults

_KEY_TYPES = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
_PATHS = ("credentialBundlePath", "keyPath", "certificateChainPath")


def projected_faults(projected: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    taken: set[str] = set()
    for index, source in each(projected, "sources"):
        here = f"{path}.sources[{index}]"
        if (bundle := source.get("clusterTrustBundle")) is not None:
            yield from _bundle_faults(bundle, f"{here}.clusterTrustBundle")
            yield from _taken_faults(bundle.get("path") or "", path, taken)
        if (certificate := source.get("podCertificate")) is not None:
            yield from _certificate_faults(certificate, f"{here}.podCertificate", path, taken)
        if sum(part is not None for part in source.values()) > 1:
            yield forbidden(here, "may not specify more than 1 volume type per source")


def _taken_faults(file: str, path: str, taken: set[str]) -> Iterator[FieldError]:
    if file in taken:
        yield invalid(path, file, "conflicting duplicate paths")
    taken.add(file)


def _bundle_faults(bundle: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    name, signer = bundle.get("name"), bundle.get("signerName")
    selector = bundle.get("labelSelector")
    if name is not None and signer is not None:
        yield invalid(path, bundle, "only one of name and signerName may be used")
    elif name is not None:
        if not name:
            yield required(f"{path}.name", "must be a valid object name")
        for fault in bundle_name_faults(name, _signer_of(name)):
            yield invalid(f"{path}.name", name, f"not a valid clustertrustbundlename: {fault}")
        if selector is not None:
            yield invalid(f"{path}.labelSelector", selector, "labelSelector must be unset if name is specified")
    elif signer is not None:
        if not signer:
            yield required(f"{path}.signerName", "must be a valid signer name")
        yield from signer_name_faults(signer, f"{path}.signerName")
        yield from label_selector_faults(selector, f"{path}.labelSelector")
    else:
        yield required(path, "either name or signerName must be specified")
    if not bundle.get("path"):
        yield required(f"{path}.path")
    yield from _user_faults(bundle, path)
    yield from local_path_faults(bundle.get("path") or "", f"{path}.path")


def _signer_of(name: str) -> str:
    """The signer in the name of a bundle, such as `example.com:signer:name`; empty if it has none."""
    signer, colon, _ = name.rpartition(":")
    return signer.replace(":", "/") if colon else ""


def _certificate_faults(
    certificate: Mapping[str, Any], path: str, volume: str, taken: set[str]
) -> Iterator[FieldError]:
    signer = certificate.get("signerName") or ""
    yield from signer_name_faults(signer, f"{path}.signerName")
    yield from user_annotations_faults(certificate.get("userAnnotations") or {}, f"{path}.userAnnotations")
    yield from _user_faults(certificate, path)
    if (type := certificate.get("keyType") or "") not in _KEY_TYPES:
        yield not_supported(f"{path}.keyType", type, _KEY_TYPES)
    seconds, most = certificate.get("maxExpirationSeconds"), longest_expiration(signer)
    if seconds is not None:
        said = "if provided, maxExpirationSeconds must be"
        if seconds < MIN_EXPIRATION:
            yield invalid(f"{path}.maxExpirationSeconds", seconds, f"{said} >= {MIN_EXPIRATION}")
        if seconds > most:
            yield invalid(f"{path}.maxExpirationSeconds", seconds, f"{said} <= {most}")
    files = [name for name in _PATHS if certificate.get(name)]
    for name in files:
        yield from local_path_faults(certificate[name], f"{path}.{name}")
        yield from _taken_faults(certificate[name], volume, taken)
    if not files:
        yield required(path, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath")


def _user_faults(source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    if source.get("user") is not None:
        yield from id_faults(source["user"], f"{path}.user")


def local_path_faults(file: str, path: str) -> Iterator[FieldError]:
    """A relative path that stays inside the volume and is not one of the names that kubelets use."""
    if file.startswith("/"):
        yield invalid(path, file, "must be a relative path")
    if ".." in file.split("/"):
        yield invalid(path, file, "must not contain '..'")
    if file.startswith("..") and not file.startswith("../"):
        yield invalid(path, file, "must not start with '..'")
