"""The process in which a what-if runs: a line with the question, then a line for each object of the snapshot, on standard
input; the answer as JSON on standard output."""

from __future__ import annotations

import logging
import os
import resource
import sys
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec.structs import replace

from wharfinger.api.configuration import Configuration, load_configuration
from wharfinger.api.errors import ApiError
from wharfinger.api.kinds import registry
from wharfinger.api.kubernetes_version import KubernetesVersion, named_version
from wharfinger.api.registry import Document
from wharfinger.dashboard.what_if import WhatIf, ask_about, plan_change, play_scenario, when_waiting_start
from wharfinger.engine.registry import known_plugins
from wharfinger.simulate.inputs import BadInput
from wharfinger.simulate.loop import NoProgress


def main() -> None:
    megabytes = int(os.environ.get("WHARF_WORKER_MEGABYTES", "4096"))
    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    os.nice(10)  # the components of `wharf up` on the same machine come first
    logging.getLogger("wharfinger").setLevel(logging.ERROR)
    known_plugins()  # imported before anybody asks
    registry()
    first = sys.stdin.buffer.readline()
    if not first:
        return  # nobody asked
    question = msgspec.json.decode(first)
    objects = [msgspec.json.decode(line) for line in sys.stdin.buffer]
    answer: Document
    try:
        answer = {"result": _answer(question["task"], question["arguments"], objects)}
    except BadInput as error:
        answer = {"problems": error.problems}
    except NoProgress as error:
        answer = {"problems": [f"the simulation makes {error}"]}
    except ApiError as error:
        answer = {"error": error.message}
    sys.stdout.buffer.write(msgspec.json.encode(answer))


def _answer(task: str, arguments: Document, objects: list[Document]) -> Any:
    configuration = _configuration(arguments.pop("config"), named_version(arguments.pop("kubernetes")))
    match task:
        case "plan":
            return plan_change(msgspec.convert(arguments, WhatIf), objects, configuration)
        case "ask":
            return ask_about(arguments["yaml"], objects, configuration, str(arguments.get("user") or ""))
        case "starts":
            return when_waiting_start(objects, configuration)
        case "play":
            return play_scenario(arguments["yaml"], objects, configuration, float(arguments.get("seconds") or 0))
    raise BadInput([f"no task is called {task}"])


def _configuration(path: str, server: KubernetesVersion) -> Configuration:
    """The file was read and checked when the server started."""
    document = (yaml.safe_load(Path(path).read_text()) or {}) if path else {}
    is_whole = document.get("kind") != "KubeSchedulerConfiguration"
    found = load_configuration(document if is_whole else {"scheduler": document})
    return found if found.kubernetes is not None else replace(found, kubernetes=server)


if __name__ == "__main__":
    main()
