"""kube-proxy, which makes Services work on a real node."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.kubernetes.cluster import free_port
from tests.real_node.machine import Program


class ServiceProxy:
    """Runs until it is stopped."""

    def __init__(self, program: Path, folder: Path, *, kubeconfig: Path, node: str, pods: str) -> None:
        file = folder / "kube-proxy.json"
        file.write_text(
            json.dumps(
                {
                    "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
                    "kind": "KubeProxyConfiguration",
                    "mode": "nftables",  # all in tables of its own, so that nothing else on the machine changes
                    "hostnameOverride": node,
                    "clusterCIDR": pods,
                    "clientConnection": {"kubeconfig": str(kubeconfig)},
                    "healthzBindAddress": f"127.0.0.1:{free_port()}",
                    "metricsBindAddress": f"127.0.0.1:{free_port()}",
                    "conntrack": {"maxPerCore": 0, "min": 0},
                }
            )
        )
        self._program = Program("kube-proxy", [str(program), "--config", str(file)], folder / "kube-proxy.log")

    def stop(self) -> None:
        """Its tables would stay when it ends."""
        self._program.stop()
        for family in ("ip", "ip6"):
            subprocess.run(["nft", "delete", "table", family, "kube-proxy"], check=False, capture_output=True)
