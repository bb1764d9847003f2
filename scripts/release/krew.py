"""The kubectl plugin as Krew installs it: an archive with a launcher and the wheel, and the manifest that names both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from scripts.release.archives import sha256, write_archive

SUMMARY = "Explain, simulate and plan scheduling"
DESCRIPTION = """\
Explains why a pod is pending and what would help, shows what a change or a drain would do before it happens, and asks
about reservations, resource policies, resource classes, scheduling policies and placements of Wharfinger.

Nothing has to be installed in the cluster to explain, simulate and plan.
"""
CAVEATS = """\
The plugin runs the `wharf` on your PATH. If there is none, it needs Python 3.11 or newer, and `uv` or `pipx`, to run the
version that comes with the plugin.
"""
LAUNCHER = """\
#!/bin/sh
# Runs `wharf`: the one on the PATH, or the one that came with this plugin.
set -eu
here=$(dirname "$(readlink -f "$0")")
if command -v wharf > /dev/null; then
  exec wharf "$@"
elif command -v uv > /dev/null; then
  exec uv tool run --quiet --from "$here/@WHEEL@" wharf "$@"
elif command -v pipx > /dev/null; then
  exec pipx run --spec "$here/@WHEEL@" wharf "$@"
fi
echo "kubectl wharf needs wharf, uv or pipx on the PATH; see https://docs.astral.sh/uv/ for the second" >&2
exit 127
"""


def write_plugin(folder: Path, wheel: Path, license: Path, version: str, epoch: int, address: str) -> tuple[Path, Path]:
    """Writes the archive and the manifest into the folder. `address` is where the files of a release are served."""
    archive = folder / f"kubectl-wharf-{version}.tar.gz"
    launcher = LAUNCHER.replace("@WHEEL@", wheel.name).encode()
    write_archive(archive, {"kubectl-wharf": launcher, wheel.name: wheel, "LICENSE": license}, epoch)
    manifest = folder / "wharf.yaml"
    manifest.write_text(
        yaml.safe_dump(plugin_manifest(archive, version, address), sort_keys=False, allow_unicode=True, width=120),
        encoding="utf-8",
    )
    return archive, manifest


def plugin_manifest(archive: Path, version: str, address: str) -> dict[str, Any]:
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "wharf"},
        "spec": {
            "version": f"v{version}",
            "homepage": "https://wharfinger.dev",
            "shortDescription": SUMMARY,
            "description": DESCRIPTION,
            "caveats": CAVEATS,
            "platforms": [
                {
                    "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": ["linux", "darwin"]}]},
                    "uri": f"{address.rstrip('/')}/{archive.name}",
                    "sha256": sha256(archive),
                    "bin": "kubectl-wharf",
                    "files": [{"from": "*", "to": "."}],
                }
            ],
        },
    }
