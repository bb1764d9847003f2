"""A DNS server for the pods of a real node: the address of a Service, or those of the pods behind one without an address."""

from __future__ import annotations

import socket
import struct
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.apiserver.running import Api

ADDRESS = "10.96.0.10"  # as kubeadm's clusters have it
DOMAIN = "cluster.local"
_A, _IN = 1, 1
_NO_ERROR, _NO_SUCH_NAME = 0, 3


class NameServer:
    """Answers until it is stopped."""

    def __init__(self, kubeconfig: Path) -> None:
        self._api = Api(kubeconfig)
        subprocess.run(["ip", "address", "replace", f"{ADDRESS}/32", "dev", "lo"], check=True)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((ADDRESS, 53))
        self._over = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over = True
        self._socket.sendto(b"", (ADDRESS, 53))
        self._thread.join()
        self._socket.close()
        subprocess.run(["ip", "address", "delete", f"{ADDRESS}/32", "dev", "lo"], check=False)

    def _serve(self) -> None:
        while True:
            query, client = self._socket.recvfrom(4096)
            if self._over:
                return
            if len(query) > 12:
                self._socket.sendto(answer(query, self.addresses), client)

    def addresses(self, name: str) -> list[str] | None:
        """The addresses of `NAME.NAMESPACE.svc.cluster.local`; None if there is no such Service."""
        labels = name.lower().removesuffix(f".{DOMAIN}").split(".")
        if len(labels) != 3 or labels[2] != "svc" or not name.lower().endswith(DOMAIN):
            return None
        path = f"/api/v1/namespaces/{labels[1]}"
        service = self._api.ask("GET", f"{path}/services/{labels[0]}")
        if service.status != 200:
            return None
        if (address := service.json["spec"].get("clusterIP", "None")) != "None":
            return [str(address)]
        endpoints: Any = self._api.ask("GET", f"{path}/endpoints/{labels[0]}").json
        subsets = endpoints.get("subsets") or ()
        return [str(each["ip"]) for subset in subsets for each in subset.get("addresses") or ()]


def answer(query: bytes, addresses: Callable[[str], list[str] | None]) -> bytes:
    """The response to a query with one question; questions for other types than A have an empty answer."""
    at, labels = 12, []
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode("ascii", "replace"))
        at += 1 + length
    question = query[12 : at + 5]
    (kind,) = struct.unpack("!H", question[-4:-2])
    found = addresses(".".join(labels))
    records = b"".join(
        b"\xc0\x0c" + struct.pack("!HHIH", _A, _IN, 5, 4) + socket.inet_aton(each)
        for each in (found or ())
        if kind == _A
    )
    count = len(found or ()) if kind == _A else 0
    code = _NO_SUCH_NAME if found is None else _NO_ERROR
    flags = 0x8580 | code  # an authoritative response; recursion is offered, so that no resolver complains
    return query[:2] + struct.pack("!HHHHH", flags, 1, count, 0, 0) + question + records
