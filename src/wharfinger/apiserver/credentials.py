"""Static tokens of the administrator and of the components, and the kubeconfigs with them.

`tokens.csv` has the format of Kubernetes' static token file (token, user, uid, "groups"); administrators may add lines.
"""

from __future__ import annotations

import csv
import io
import secrets
from base64 import b64encode
from pathlib import Path

import msgspec

from wharfinger.admission.request import SYSTEM, User
from wharfinger.apiserver.files import private_directory, write_private
from wharfinger.system import ordered_systems

AUTHENTICATED = "system:authenticated"

SCHEDULER = User("system:kube-scheduler", (AUTHENTICATED,))
CONTROLLERS = User("system:kube-controller-manager", (AUTHENTICATED,))
NODES = User("system:wharfinger:nodes", ("system:nodes", AUTHENTICATED))


def component_users() -> dict[str, User]:
    """By component: each is its own user, with the rights of the role that is bound to that name."""
    users = {"scheduler": SCHEDULER, "controllers": CONTROLLERS, "nodes": NODES}
    processes = (process for system in ordered_systems() for process in system.installation().processes)
    return users | {process.name: User(process.user, (AUTHENTICATED,)) for process in processes}


class BadTokenFile(ValueError):
    """The token file is malformed; the message has file and line."""


class StaticCredentials(msgspec.Struct, frozen=True):
    """The static tokens of one data directory."""

    directory: Path
    users: dict[str, User]  # by token
    tokens: dict[str, str]  # the token of the administrator ("admin") and of each component

    def write_kubeconfigs(self, server: str, authority: Path) -> Path:
        """Writes the kubeconfigs with the server's address; returns the path of the administrator's."""
        certificate = authority.read_bytes()
        private_directory(self.directory / "kubeconfigs")
        for component in component_users():
            path = component_kubeconfig(self.directory, component)
            write_private(path, kubeconfig(server, certificate, component, self.tokens[component]))
        admin = self.directory / "kubeconfig"
        write_private(admin, kubeconfig(server, certificate, "admin", self.tokens["admin"]))
        return admin


def component_kubeconfig(directory: Path, component: str) -> Path:
    return directory / "kubeconfigs" / f"{component}.kubeconfig"


def load_credentials(directory: Path) -> StaticCredentials:
    """Reads the tokens and creates missing ones."""
    private_directory(directory)
    path = directory / "tokens.csv"
    rows = _read(path) if path.exists() else []
    users = dict(rows)
    needed = {"admin": SYSTEM, **component_users()}
    tokens: dict[str, str] = {}
    for name, user in needed.items():
        token = next((token for token, known in rows if known.name == user.name), None)
        if token is None:
            token = secrets.token_urlsafe(32)
            users[token] = user
        tokens[name] = token
    if len(users) > len(rows):
        write_private(path, _render(users))
    return StaticCredentials(directory, users, tokens)


def _read(path: Path) -> list[tuple[str, User]]:
    rows = []
    for number, row in enumerate(csv.reader(io.StringIO(path.read_text())), start=1):
        if not row or row[0].startswith("#"):
            continue
        if len(row) < 3 or not row[0] or not row[1]:
            raise BadTokenFile(f'{path}:{number}: want token,user,uid and optionally "group,group"')
        groups = tuple(group.strip() for group in row[3].split(",") if group.strip()) if len(row) > 3 else ()
        rows.append((row[0], User(row[1], tuple(dict.fromkeys((*groups, AUTHENTICATED))), row[2])))
    return rows


def _render(users: dict[str, User]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for token, user in users.items():
        groups = ",".join(group for group in user.groups if group != AUTHENTICATED)
        writer.writerow((token, user.name, user.uid, groups))
    return out.getvalue()


def kubeconfig(server: str, authority: bytes, user: str, token: str) -> bytes:
    """A kubeconfig with one context, as JSON, which is valid YAML."""
    return kubeconfig_with(server, authority, user, {"token": token})


def kubeconfig_with(server: str, authority: bytes, user: str, credentials: dict[str, str]) -> bytes:
    """As `kubeconfig`, with any credentials that a kubeconfig can hold."""
    name = f"{user}@wharfinger"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "wharfinger",
                "cluster": {"server": server, "certificate-authority-data": b64encode(authority).decode()},
            }
        ],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": name, "context": {"cluster": "wharfinger", "user": user, "namespace": "default"}}],
        "current-context": name,
        "preferences": {},
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
