"""A control plane with one real node, for the specs that need containers.

The specs' images are made here, since no registry can be reached: `agnhost`, which most of them run, is upstream's own
program; the others are made of it or of busybox. They are imported under the names that the specs use.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.apiserver.running import environment
from tests.conformance.names import ADDRESS, DOMAIN, NameServer
from tests.kubernetes.binaries import AGNHOST, HERE, Binaries
from tests.real_node.conftest import WHARF, RealCluster
from tests.real_node.machine import Machine, control_plane, lacking

IMAGES = "registry.k8s.io/e2e-test-images"
AGNHOSTS = ("2.55", "2.66.1")  # as test/utils/image/manifest.go of the specs' version names them
PETS = ("nautilus:1.8", "kitten:1.8")
NGINX = ("1.27.0-2", "1.28.0-2")
BUSYBOX = "1.37.0-2"
PAUSE = "registry.k8s.io/pause:3.10.2"
_PAGE = "<html><title>Welcome to nginx!</title></html>\n"


@contextmanager
def real_control_plane(binaries: Binaries, log: Path) -> Iterator[Path]:
    """The kubeconfig of `wharf up` whose only node is a real one."""
    if why := lacking():
        sys.exit(f"Error: {why}")
    with tempfile.TemporaryDirectory(prefix="wharfinger-node-") as name:
        folder = Path(name)
        machine = Machine(folder / "machine")
        cluster = RealCluster(binaries, machine, folder / "data")
        names: NameServer | None = None
        try:
            machine.start()
            add_images(machine, binaries[AGNHOST], folder)
            up = [*WHARF, "up", "--port", "0", "--no-dashboard", "--nodes", "0"]
            with control_plane(up, cluster.data, environment() | {"PATH": os.environ["PATH"]}):
                machine.serve_api(json.loads((cluster.data / "apiserver.json").read_text())["address"])
                names = NameServer(cluster.data / "kubeconfig")
                cluster.join(clusterDNS=[ADDRESS], clusterDomain=DOMAIN)
                cluster.wait_ready()
                yield cluster.data / "kubeconfig"
        finally:
            if cluster.kubelet is not None:
                log.write_text(cluster.kubelet.tail(100_000))
                cluster.kubelet.stop()
            if names is not None:
                names.stop()
            machine.stop()


def add_images(machine: Machine, agnhost: Path, folder: Path) -> None:
    sources = module_folder() / "test/images"
    program = {"agnhost": agnhost}
    program |= {name: sources / "agnhost/porter" / name for name in ("localhost.crt", "localhost.key")}
    start = {"Entrypoint": ["/agnhost"], "Cmd": ["pause"]}
    machine.add_image(*(f"{IMAGES}/agnhost:{version}" for version in AGNHOSTS), files=program, **start)
    for pet in PETS:
        html = sources / pet.partition(":")[0] / "html"
        files = {**program, **{each.name: each for each in html.iterdir()}}
        machine.add_image(f"{IMAGES}/{pet}", files=files, **{**start, "Cmd": ["test-webserver"]})
    page = folder / "index.html"
    page.write_text(_PAGE)
    serve = ["httpd", "-f", "-p", "80", "-h", "/www"]
    machine.add_image(*(f"{IMAGES}/nginx:{version}" for version in NGINX), files={"www/index.html": page}, Cmd=serve)
    machine.add_image(f"{IMAGES}/busybox:{BUSYBOX}", Cmd=["sh"])
    machine.add_image(PAUSE)


def module_folder() -> Path:
    """Where Go keeps the sources that e2e.test is built from."""
    command = ["go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"]
    said = subprocess.run(command, cwd=HERE / "binaries", check=True, capture_output=True, text=True).stdout
    return Path(said.strip())
