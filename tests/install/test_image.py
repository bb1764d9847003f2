"""How the image is made, as far as that needs no packages of Debian and no container runtime."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from scripts.image import debian, inside, oci, sbom, trees
from scripts.image.__main__ import labels
from scripts.image.debian import PYTHON, BuildError, DebianPackage, packages
from scripts.image.trees import Layer, PythonPackage

from wharfinger.api.kinds import registry
from wharfinger.cli.commands.install import command
from wharfinger.install.components import chosen
from wharfinger.install.manifests import manifests
from wharfinger.install.options import InstallOptions

ROOT = Path(__file__).resolve().parents[2]
STEPS = [
    (word, rest)
    for word, _, rest in (
        line.partition(" ")
        for line in re.sub(r"\\\n", "", (ROOT / "Dockerfile").read_text()).splitlines()
        if line and not line.startswith("#")
    )
]


def the(word: str) -> str:
    """What the last instruction of that word says."""
    return [rest for each, rest in STEPS if each == word][-1]


def test_what_the_dockerfile_copies_is_there_and_not_ignored() -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    sources = [name for word, rest in STEPS if word == "COPY" and "--from" not in rest for name in rest.split()[:-1]]
    assert sources
    for name in sources:
        assert (ROOT / name).exists(), name
        assert any(fnmatch.fnmatch(name, each) for each in kept), name


def test_the_python_is_one_that_the_package_supports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = PYTHON.removeprefix("python")
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]
    assert f"{PYTHON}-minimal" in packages()


def test_the_dockerfile_has_the_labels_of_the_image() -> None:
    made = dict(each.split("=", 1) for each in shlex.split(the("LABEL")))
    assert made == labels("$REVISION")


def archive(folder: Path, content: str = "text") -> tuple[oci.Archive, Path]:
    """An image of one small layer."""
    tree, blobs = folder / "tree", folder / "blobs"
    for each in (tree / "tmp", tree / "usr/bin", blobs):
        each.mkdir(parents=True)
    (tree / "tmp").chmod(0o1777)
    (tree / "usr/bin/program").write_text(content)
    (tree / "usr/bin/program").chmod(0o755)
    (tree / "bin").symlink_to("usr/bin")
    layer = Layer(**inside.pack(tree, blobs / "partial", 0))  # type: ignore[arg-type]
    (blobs / "partial").rename(blobs / layer.digest.removeprefix("sha256:"))
    target = folder / "image.tar"
    return oci.write(target, blobs, [layer], "wharfinger:1", {"label": "value"}, 0), target


def test_the_same_files_give_the_same_archive_and_others_another(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    first, one = archive(tmp_path / "a")
    (tmp_path / "b").touch()
    second, two = archive(tmp_path / "b")
    assert first == second and one.read_bytes() == two.read_bytes()
    assert archive(tmp_path / "c", "other text")[0].digest != first.digest


def test_the_archive_is_a_layout_of_oci_and_one_of_docker(tmp_path: Path) -> None:
    made, target = archive(tmp_path)
    with tarfile.open(target) as tar:

        def read(name: str) -> bytes:
            found = tar.extractfile(name)
            assert found is not None
            return found.read()

        index, (saved,) = json.loads(read("index.json")), json.loads(read("manifest.json"))
        (entry,) = index["manifests"]
        assert entry["digest"] == made.digest
        assert entry["annotations"]["io.containerd.image.name"] == "docker.io/library/wharfinger:1"
        manifest = json.loads(read(f"blobs/sha256/{entry['digest'].removeprefix('sha256:')}"))
        assert saved["Config"].endswith(manifest["config"]["digest"].removeprefix("sha256:"))
        config = json.loads(read(saved["Config"]))["config"]
        (tmp_path / "layer").write_bytes(read(saved["Layers"][0]))
    assert config["Labels"] == {"label": "value"}
    # The Dockerfile makes an image that runs in the same way.
    assert (config["User"], config["Entrypoint"]) == (the("USER"), json.loads(the("ENTRYPOINT")))
    assert config["Env"] == the("ENV").split()
    with tarfile.open(tmp_path / "layer") as layer:
        entries = {each.name: (each.type, each.mode, each.uid, each.mtime) for each in layer}
    assert list(entries) == sorted(entries)
    assert entries["tmp"] == (tarfile.DIRTYPE, 0o1777, 0, 0)
    assert entries["usr/bin/program"] == (tarfile.REGTYPE, 0o755, 0, 0)
    assert entries["bin"][0] == tarfile.SYMTYPE


def test_deployments_run_it_as_its_user() -> None:
    made = manifests(InstallOptions(chosen(["all"])), registry())
    users = {
        each["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
        for each in made
        if each["kind"] == "Deployment"
    }
    assert users == {int(oci.USER.partition(":")[0])}


def test_what_no_program_needs_is_removed(tmp_path: Path) -> None:
    kept = ["a/__init__.py", "a/b.so", "a-1.dist-info/METADATA", "a-1.dist-info/licenses/LICENSE", "numpy/testing/x.py"]
    dropped = ["a/tests/test_a.py", "a/x.pyi", "a/x.c", "numpy/f2py/x.py", "a-1.dist-info/RECORD", "bin/tool"]
    dropped += ["a-1.dist-info/direct_url.json", "a/include/x.txt", "a/__pycache__/b.pyc"]
    for name in (*kept, *dropped):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    trees.prune(tmp_path)
    assert sorted(str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*") if each.is_file()) == sorted(kept)


def test_the_bill_of_materials_names_every_package_and_is_the_same_each_time() -> None:
    packages = [DebianPackage("libstdc++6", "14.2.0-19", "amd64", "ab" * 32, "")]
    modules = [PythonPackage("PyYAML", "6.0.3", "MIT"), PythonPackage("wharfinger", "1.0", "Apache-2.0")]
    text = sbom.sbom("1.0", packages, modules)
    assert text == sbom.sbom("1.0", packages, modules)
    document = json.loads(text)
    assert (document["bomFormat"], document["metadata"]["component"]["name"]) == ("CycloneDX", "wharfinger")
    assert [each["purl"] for each in document["components"]] == [
        "pkg:deb/debian/libstdc%2B%2B6@14.2.0-19?arch=amd64&distro=trixie",
        "pkg:pypi/pyyaml@6.0.3",
    ]


def test_a_machine_without_apt_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match="apt-get is missing"):
        debian.fetch(tmp_path)


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("wharfinger:1", "docker.io/library/wharfinger:1"),
        ("team/wharfinger:1", "docker.io/team/wharfinger:1"),
        ("registry.example.com/wharfinger:1", "registry.example.com/wharfinger:1"),
        ("localhost:5000/wharfinger:1", "localhost:5000/wharfinger:1"),
    ],
)
def test_names_are_completed_as_runtimes_do(tag: str, name: str) -> None:
    assert oci.full_name(tag) == name


@pytest.mark.parametrize(
    ("reference", "accepted"),
    [
        ("registry.example.com/wharfinger:1", True),
        (f"wharfinger@sha256:{'0a' * 32}", True),
        (f"wharfinger:1@sha256:{'0a' * 32}", True),
        ("wharfinger@sha256:0a0a", False),
        ("wharfinger@latest", False),
        (f"@sha256:{'0a' * 32}", False),
        ("two words", False),
    ],
)
def test_an_image_may_be_pinned_by_digest(reference: str, accepted: bool) -> None:
    done = CliRunner().invoke(command, ["--offline", "--components", "scheduler", "--image", reference])
    if accepted:
        assert f"image: {reference}" in done.stdout
    else:
        assert done.exit_code == 2 and "NAME@sha256:DIGEST" in done.stderr and not done.stdout


def test_bytecode_does_not_depend_on_where_it_was_compiled(tmp_path: Path) -> None:
    for name in ("a", "b"):
        source = tmp_path / name / "usr/lib/x.py"
        source.parent.mkdir(parents=True)
        source.write_text("def f():\n    return {'a', 'b'}\n")
        inside.compile_all(tmp_path / name)
    cached = f"usr/lib/__pycache__/x.{sys.implementation.cache_tag}.pyc"
    assert (tmp_path / "a" / cached).read_bytes() == (tmp_path / "b" / cached).read_bytes()
