"""`make image`: the image as an archive, and its bill of materials. With --root only its files, for the Dockerfile."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from scripts.image import oci, trees
from scripts.image.debian import BuildError, architecture
from scripts.image.sbom import PATH, sbom

PROJECT = Path(__file__).resolve().parents[2]
LIMIT = 150_000_000  # bytes of compressed layers


def version() -> str:
    found = re.search(r'^__version__ = "(.*)"', (PROJECT / "src/wharfinger/__init__.py").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def labels(revision: str = "") -> dict[str, str]:
    prefix = "org.opencontainers.image"
    made = {
        f"{prefix}.title": "wharfinger",
        f"{prefix}.description": "A scheduling control plane for Kubernetes",
        f"{prefix}.version": version(),
        f"{prefix}.licenses": "Apache-2.0",
    }
    return made | ({f"{prefix}.revision": revision} if revision else {})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.image", description=__doc__)
    parser.add_argument("--tag", default=f"wharfinger:{version()}", help="name of the image (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=PROJECT / "dist", help="folder of the archive")
    parser.add_argument("--wheel", type=Path, help="a wheel of Wharfinger; built otherwise")
    parser.add_argument("--revision", default="", help="commit that the image is built from, for its labels")
    parser.add_argument("--root", type=Path, help="write the files of the image to this folder, and no archive")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="wharfinger-image-") as folder:
            build(options, Path(folder))
    except BuildError as error:
        sys.exit(f"Error: {error}")


def build(options: argparse.Namespace, folder: Path) -> None:
    made = trees.lay_out(folder / "trees", PROJECT, options.wheel)
    materials = sbom(version(), made.debian_packages, made.python_packages)
    inside = made.layers[-1] / PATH
    inside.parent.mkdir(parents=True)
    inside.write_text(materials)
    if options.root is not None:
        for tree in made.layers:
            shutil.copytree(tree, options.root, symlinks=True, dirs_exist_ok=True)
        return
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or 0)
    blobs = folder / "blobs"
    blobs.mkdir()
    layers = trees.pack(made, blobs, epoch)
    options.output.mkdir(parents=True, exist_ok=True)
    stem = f"wharfinger-{version()}-image-{architecture()}"
    archive = options.output / f"{stem}.tar"
    done = oci.write(archive, blobs, layers, options.tag, labels(options.revision), epoch)
    (options.output / f"{stem}.cdx.json").write_text(materials)
    (options.output / f"{stem}.digest").write_text(f"{done.digest}\n")
    if done.compressed > LIMIT:
        raise BuildError(f"the layers have {done.compressed >> 20} MiB, more than {LIMIT / 1e6:.0f} MB")
    print(f"{archive}: {options.tag.partition('@')[0].rpartition(':')[0]}@{done.digest}")
    print(f"{done.compressed / 1e6:.1f} MB in {len(layers)} layers, {done.unpacked / 1e6:.1f} MB unpacked")


if __name__ == "__main__":
    main()
