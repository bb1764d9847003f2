"""The check that dependencies have wheels."""

from __future__ import annotations

from pathlib import Path

from scripts.wheels import TARGETS, Locked, locked, missing

ROOT = Path(__file__).parents[2]
EVERYWHERE = (
    "manylinux_2_17_x86_64.manylinux2014_x86_64",
    "manylinux_2_28_aarch64",
    "macosx_10_13_x86_64",
    "macosx_11_0_arm64",
)


def test_a_lock_is_read_with_markers() -> None:
    lock = "click==8.2.0 \\\n    --hash=sha256:1\nuvloop==0.22.1 ; sys_platform != 'win32' \\\n    --hash=sha256:2\n    # via x\n"

    assert list(locked(lock)) == [
        Locked("click", "8.2.0", ""),
        Locked("uvloop", "0.22.1", "sys_platform != 'win32'"),
    ]


def test_every_dependency_of_the_project_is_in_the_lock() -> None:
    names = {package.name for package in locked((ROOT / "requirements.lock").read_text())}

    assert {"numpy", "grpcio", "uvloop", "zstandard", "cel-expr-python", "google-re2"} <= names


def test_pure_and_stable_wheels_serve_every_python() -> None:
    package = Locked("x", "1.0", "")

    assert missing(package, ["x-1.0-py3-none-any.whl"]) == []
    assert missing(package, [f"x-1.0-cp311-abi3-{platform}.whl" for platform in EVERYWHERE]) == []


def test_what_has_no_wheel_is_told() -> None:
    package = Locked("x", "1.0", "")
    files = [f"x-1.0-cp3{minor}-cp3{minor}-{platform}.whl" for minor in (11, 12, 13) for platform in EVERYWHERE]

    assert {target.python for target in missing(package, files)} == {(3, 14)}
    assert missing(package, ["x-1.0.tar.gz", "x-2.0-py3-none-any.whl"]) == TARGETS
    assert [str(target) for target in missing(package, [file for file in files if "aarch64" not in file])][:1] == [
        "CPython 3.11 on Linux aarch64"
    ]


def test_a_package_counts_only_where_its_marker_holds() -> None:
    assert missing(Locked("x", "1.0", "sys_platform == 'win32'"), []) == []
    assert {target.system for target in missing(Locked("x", "1.0", "sys_platform == 'darwin'"), [])} == {"macOS"}
