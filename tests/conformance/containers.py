"""A control plane with one real node, for the specs that need containers.

The specs' images are made here and pulled from a registry on this machine: `agnhost`, which most of them run, is upstream's
own program; the others are made of it or of busybox.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.apiserver.running import environment
from tests.conformance.names import ADDRESS, DOMAIN, NameServer
from tests.conformance.registry import Registry
from tests.kubernetes.binaries import AGNHOST, CONTAINERD, HERE, Binaries
from tests.real_node.conftest import WHARF, RealCluster
from tests.real_node.images import make_image
from tests.real_node.machine import Machine, control_plane, lacking
from tests.real_node.services import ServiceProxy

HOST = "registry.k8s.io"
IMAGES = f"{HOST}/e2e-test-images"
AGNHOSTS = ("2.55", "2.66.1")  # as test/utils/image/manifest.go of the specs' version names them
PETS = ("nautilus:1.8", "kitten:1.8")
NGINX = ("1.27.0-2", "1.28.0-2")
BUSYBOX = "1.37.0-2"
PAUSE = f"{HOST}/pause:3.10.2"
_PAGE = "<html><title>Welcome to nginx!</title></html>\n"


@contextmanager
def real_control_plane(binaries: Binaries, logs: Path) -> Iterator[Path]:
    """The kubeconfig of `wharf up` whose only node is a real one, with Services and their names. The logs of its programs
    are kept in a folder."""
    if why := lacking() or ("" if shutil.which("nft") else "Services need nft (nftables)"):
        sys.exit(f"Error: {why}")
    with tempfile.TemporaryDirectory(prefix="wharfinger-node-") as name, ExitStack() as stack:
        folder = Path(name)
        machine = Machine(binaries[CONTAINERD], folder / "machine")
        cluster = RealCluster(binaries, machine, folder / "data")
        stack.callback(lambda: keep_logs(folder, logs))
        stack.callback(machine.stop)
        machine.start()
        registry = Registry()
        stack.callback(registry.stop)
        add_images(registry, binaries[AGNHOST], folder)
        machine.mirror(HOST, registry.url)
        up = [*WHARF, "up", "--port", "0", "--no-dashboard", "--nodes", "0"]
        stack.enter_context(control_plane(up, cluster.data, environment() | {"PATH": os.environ["PATH"]}))
        kubeconfig = cluster.data / "kubeconfig"
        machine.serve_api(json.loads((cluster.data / "apiserver.json").read_text())["address"])
        stack.callback(NameServer(kubeconfig).stop)
        kubelet = cluster.join(clusterDNS=[ADDRESS], clusterDomain=DOMAIN)
        stack.callback(kubelet.stop)
        # The API server listens on the loopback interface, where kube-proxy cannot send pods; `serve_api` can.
        cluster("label", "service", "kubernetes", "service.kubernetes.io/service-proxy-name=test")
        proxy = ServiceProxy(
            binaries["kube-proxy"], machine.folder, kubeconfig=kubeconfig, node=kubelet.name, pods=machine.pods
        )
        stack.callback(proxy.stop)
        cluster.wait_ready()
        yield kubeconfig


def keep_logs(folder: Path, logs: Path) -> None:
    for each in (*folder.glob("*.log"), *folder.glob("machine/*.log")):
        shutil.copy(each, logs / each.name)


def add_images(registry: Registry, agnhost: Path, folder: Path) -> None:
    sources = module_folder() / "test/images"
    program = {"agnhost": agnhost}
    program |= {name: sources / "agnhost/porter" / name for name in ("localhost.crt", "localhost.key")}
    start = {"Entrypoint": ["/agnhost"], "Cmd": ["pause"]}
    registry.add(make_image(program, **start), *(f"{IMAGES}/agnhost:{version}" for version in AGNHOSTS))
    for pet in PETS:
        html = sources / pet.partition(":")[0] / "html"
        files = {**program, **{each.name: each for each in html.iterdir()}}
        registry.add(make_image(files, **{**start, "Cmd": ["test-webserver"]}), f"{IMAGES}/{pet}")
    page = folder / "index.html"
    page.write_text(_PAGE)
    serve = ["httpd", "-f", "-p", "80", "-h", "/www"]
    registry.add(make_image({"www/index.html": page}, Cmd=serve), *(f"{IMAGES}/nginx:{version}" for version in NGINX))
    registry.add(make_image(Cmd=["sh"]), f"{IMAGES}/busybox:{BUSYBOX}")
    registry.add(make_image(), PAUSE)


def module_folder() -> Path:
    """Where Go keeps the sources that e2e.test is built from."""
    command = ["go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"]
    said = subprocess.run(command, cwd=HERE / "binaries", check=True, capture_output=True, text=True).stdout
    return Path(said.strip())
