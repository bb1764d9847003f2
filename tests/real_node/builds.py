"""The image of Wharfinger that is installed on clusters from nothing, in two builds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scripts.image import oci, trees
from scripts.image.__main__ import labels
from scripts.image.debian import BuildError
from tests.kubernetes.cluster import ROOT
from tests.support import missing


@dataclass(frozen=True)
class Builds:
    """Two builds that differ in the program's own layer."""

    archives: list[Path]
    digests: list[str]
    compressed: int

    def image(self, number: int) -> str:
        return f"wharfinger@{self.digests[number]}"


def make_builds(folder: Path) -> Builds:
    blobs = folder / "blobs"
    blobs.mkdir()
    try:
        made = trees.lay_out(folder / "trees", ROOT)
    except BuildError as error:
        missing("containerd", str(error))
    layers = trees.pack(made, blobs, 0)
    archives, written = [folder / "first.tar", folder / "second.tar"], []
    written.append(oci.write(archives[0], blobs, layers, "wharfinger:first", labels(), 0))
    (made.layers[-1] / "usr/share/wharfinger").mkdir(parents=True)
    (made.layers[-1] / "usr/share/wharfinger/build").write_text("second\n")
    layers[-1] = trees.pack_layer(made.python(), made.layers[-1], blobs, 0)
    written.append(oci.write(archives[1], blobs, layers, "wharfinger:second", labels(), 0))
    return Builds(archives, [each.digest for each in written], written[0].compressed)
