"""The packages of Debian in the image: fetched and verified by apt, unpacked here."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

SUITE = "trixie"
PYTHON = "python3.13"


def packages(python: str = PYTHON) -> tuple[str, ...]:
    """What a Python, and wheels for it, need."""
    return (
        "base-files",
        "ca-certificates",
        "libbz2-1.0",
        "libc6",
        "libexpat1",
        "libffi8",
        "libgcc-s1",
        "liblzma5",
        f"lib{python}-minimal",
        f"lib{python}-stdlib",
        "libsqlite3-0",
        "libssl3t64",
        "libstdc++6",
        "libuuid1",
        "libzstd1",
        "media-types",
        "netbase",
        f"{python}-minimal",
        "tzdata",
        "zlib1g",
    )


_MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org")
_KEYRINGS = ("/usr/share/keyrings/debian-archive-keyring.pgp", "/usr/share/keyrings/debian-archive-keyring.gpg")
_KEPT_DOCUMENTS = "copyright"
_DROPPED = (
    "etc/cron.d",
    "etc/cron.daily",
    "etc/default",
    "etc/motd",
    "etc/profile.d",
    "etc/update-motd.d",
    "usr/lib/systemd",
    "usr/sbin",
    "usr/share/applications",
    "usr/share/base-files",
    "usr/share/bug",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/pixmaps",
    "usr/share/python3",
    "var/backups",
    "var/cache",
    "var/local",
    "var/mail",
    "var/spool",
    f"usr/lib/{PYTHON}/__phello__",
    f"usr/lib/{PYTHON}/curses",
    f"usr/lib/{PYTHON}/ensurepip",
    f"usr/lib/{PYTHON}/idlelib",
    f"usr/lib/{PYTHON}/pydoc_data",
    f"usr/lib/{PYTHON}/test",
    f"usr/lib/{PYTHON}/tkinter",
    f"usr/lib/{PYTHON}/turtledemo",
    f"usr/lib/{PYTHON}/venv",
)
_DROPPED_MODULES = ("_curses", "_curses_panel", "_dbm", "_gdbm", "_tkinter", "readline")  # their libraries are left out


class BuildError(Exception):
    """The image cannot be built; the text says why."""


@dataclass(frozen=True, slots=True)
class DebianPackage:
    name: str
    version: str
    architecture: str
    digest: str  # SHA-256 of the .deb
    control: str


def architecture() -> str:
    """As Debian and OCI name this machine's."""
    names = {"x86_64": "amd64", "aarch64": "arm64"}
    machine = os.uname().machine
    if machine not in names:
        raise BuildError(f"images are built for {' and '.join(names)}, not for {machine}")
    return names[machine]


def fetch(folder: Path, suite: str = SUITE, python: str = PYTHON) -> list[Path]:
    """Downloads the packages that a suite has now. apt checks their signatures."""
    if shutil.which("apt-get") is None:
        raise BuildError("apt-get is missing: the image is built on Debian or its derivatives, or with Docker")
    keyring = next((each for each in _KEYRINGS if Path(each).exists()), None)
    if keyring is None:
        raise BuildError("Debian's keys are missing: install debian-archive-keyring")
    state, archives = folder / "apt", folder / "packages"
    for each in (state / "lists/partial", state / "cache/archives/partial", archives):
        each.mkdir(parents=True)
    (state / "status").touch()
    sources = f"deb [signed-by={keyring}] {_MIRROR}/"
    lines = [f"{sources}debian {suite}{more} main" for more in ("", "-updates")]
    (state / "sources.list").write_text("\n".join([*lines, f"{sources}debian-security {suite}-security main", ""]))
    config = state / "apt.conf"
    config.write_text(_settings(state))
    for arguments in (["update"], ["download", *packages(python)]):
        done = subprocess.run(
            ["apt-get", "-qq", *arguments],
            env={**os.environ, "APT_CONFIG": str(config), "LC_ALL": "C"},
            cwd=archives,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BuildError(f"apt-get {arguments[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return sorted(archives.glob("*.deb"))


def _settings(state: Path) -> str:
    """A state of its own, so that the machine's packages play no part. Its proxies and mirrors' settings do."""
    settings = {
        "Dir::State": state,
        "Dir::State::lists": state / "lists",
        "Dir::State::status": state / "status",
        "Dir::Cache": state / "cache",
        "Dir::Etc::sourcelist": state / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "APT::Architecture": architecture(),
        "APT::Architectures": architecture(),
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        "Debug::NoLocking": "true",
    }
    return "".join(f'{name} "{value}";\n' for name, value in settings.items())


def unpack(archives: list[Path], root: Path) -> list[DebianPackage]:
    """Unpacks what the image needs of each package."""
    return sorted((_unpack(path, root) for path in archives), key=lambda each: each.name)


def _unpack(path: Path, root: Path) -> DebianPackage:
    data = path.read_bytes()
    parts = dict(_members(data))
    with _opened(parts, "control.tar") as tar:
        found = tar.extractfile("./control")
        assert found is not None
        control = found.read().decode()
    fields = dict(line.split(": ", 1) for line in control.splitlines() if ": " in line and line[0] != " ")
    package = DebianPackage(
        fields["Package"], fields["Version"], fields["Architecture"], sha256(data).hexdigest(), control
    )
    with _opened(parts, "data.tar") as tar:
        for member in tar:
            name = member.name.removeprefix("./").rstrip("/")
            if name and not member.isdir() and _wanted(name):
                tar.extract(member, root, set_attrs=not member.issym(), filter="tar")
    described = root / "var/lib/dpkg/status.d" / package.name  # where scanners look in images without dpkg
    described.parent.mkdir(parents=True, exist_ok=True)
    described.write_text(control)
    return package


def _wanted(name: str) -> bool:
    if name.startswith("usr/share/doc/"):
        return name.rpartition("/")[2] == _KEPT_DOCUMENTS
    if "/lib-dynload/" in name:
        return name.rpartition("/")[2].partition(".")[0] not in _DROPPED_MODULES
    return not any(name == each or name.startswith(f"{each}/") for each in _DROPPED)


def _members(archive: bytes) -> Iterator[tuple[str, bytes]]:
    """The files of an ar archive."""
    if not archive.startswith(b"!<arch>\n"):
        raise BuildError("a package is not an ar archive")
    at = 8
    while at < len(archive):
        name, size = archive[at : at + 16].decode().strip().rstrip("/"), int(archive[at + 48 : at + 58])
        yield name, archive[at + 60 : at + 60 + size]
        at += 60 + size + size % 2


def _opened(parts: dict[str, bytes], name: str) -> tarfile.TarFile:
    for found, data in parts.items():
        if found.startswith(name):
            return tarfile.open(fileobj=io.BytesIO(data))
    raise BuildError(f"a package has no {name}")


def complete(root: Path) -> None:
    """What the packages' scripts, or an administrator, would have added."""
    certificates = sorted((root / "usr/share/ca-certificates/mozilla").glob("*.crt"))
    bundle = root / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_text("".join(path.read_text() for path in certificates))
    shutil.rmtree(root / "usr/share/ca-certificates")
    (root / "usr/bin/python3").symlink_to(PYTHON)
    (root / "etc/passwd").write_text(
        "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"
    )
    (root / "etc/group").write_text("root:x:0:\nnonroot:x:65532:\n")
    (root / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")
    for folder in ("dev", "etc/wharfinger", "home/nonroot", "proc", "run", "sys", "tmp", "usr/sbin"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
