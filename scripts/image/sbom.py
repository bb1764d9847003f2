"""The software bill of materials of the image, in CycloneDX JSON: what it is made of, in which versions."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any
from urllib.parse import quote

from scripts.image.debian import SUITE, DebianPackage
from scripts.image.trees import PythonPackage

PATH = "usr/share/wharfinger/sbom.cdx.json"
_NAMESPACE = uuid.UUID("6a0f4f0e-8a39-5c5c-9f5b-0b7f3c3b6a57")


def sbom(version: str, packages: list[DebianPackage], modules: list[PythonPackage]) -> str:
    """The same for the same packages: no time, and a serial number that follows from the content."""
    own = next(each for each in modules if each.name == "wharfinger")
    components = [_debian(each) for each in packages] + [_python(each) for each in modules if each is not own]
    subject = {**_python(own), "type": "application", "version": version}
    serial = uuid.uuid5(_NAMESPACE, json.dumps([subject, components], sort_keys=True))
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": subject},
        "components": components,
        "dependencies": [{"ref": subject["bom-ref"], "dependsOn": sorted(each["bom-ref"] for each in components)}],
    }
    return json.dumps(document, indent=2) + "\n"


def _debian(package: DebianPackage) -> dict[str, Any]:
    name, version = quote(package.name), quote(package.version)
    purl = f"pkg:deb/debian/{name}@{version}?arch={package.architecture}&distro={SUITE}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": package.digest}],
    }


def _python(package: PythonPackage) -> dict[str, Any]:
    purl = f"pkg:pypi/{re.sub(r'[-_.]+', '-', package.name).lower()}@{quote(package.version)}"
    component = {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
    }
    return component | ({"licenses": [{"license": {"name": package.license}}]} if package.license else {})
