"""Measures the dashboard of a large cluster in Chromium: `make bench-dashboard`.

    python -m tests.dashboard.measure [--nodes 5000] [--pods 50000] [--data FOLDER] [--screenshots FOLDER] [-o text|json]

An embedded API server is filled with nodes and pods, one pod in fifty of which waits, and `wharf dashboard` serves them. It
needs Chromium, the built page (`make web`) and about three minutes, most of which `--data` saves the next time. Nothing is
judged: seconds depend on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright
from playwright.sync_api import Error as PlaywrightError
from tests.apiserver.running import Api, environment
from tests.dashboard.conftest import WHARF, Caller, until
from tests.support import require

from wharfinger.api.kinds.builtin import NAMESPACES, NODES, PODS
from wharfinger.client.connect import connect
from wharfinger.dashboard.application import STATIC, is_built

Document = dict[str, Any]

AT_ONCE = 32  # requests that fill the API server
NAMESPACE_COUNT = 40
WAITING = 50  # one pod in so many waits
FLIPS = 15  # changes whose way to the page is timed
SECONDS = 300.0  # for the dashboard to have loaded the cluster
PANNING = 5.0  # seconds
THEMES, SIZES = ("light", "dark"), {"1440": (1440, 900), "390": (390, 844)}

_COUNT_FRAMES = """(seconds) => new Promise((resolve) => {
  const times = []; const start = performance.now();
  const step = (now) => { times.push(now); now - start < seconds * 1000 ? requestAnimationFrame(step) : resolve(times); };
  requestAnimationFrame(step);
})"""
_PAN = """(seconds) => { const start = performance.now(); const step = () => {
  const past = performance.now() - start; const canvas = document.querySelector('canvas');
  const box = canvas.getBoundingClientRect();
  scrollTo(0, (box.height / 2) * (1 - Math.cos(past / 300)));
  canvas.dispatchEvent(new MouseEvent('mousemove', {bubbles: true, clientX: box.left + (past % box.width),
    clientY: 200 + (past / 7) % 300}));
  if (past < seconds * 1000) requestAnimationFrame(step); };
  requestAnimationFrame(step); }"""


def node(number: int) -> Document:
    labels = {
        "kubernetes.io/hostname": f"node-{number:04}",
        "topology.kubernetes.io/zone": f"zone-{'abc'[number % 3]}",
        "pool": f"pool-{number % 7}",
    }
    size = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"allocatable": size, "capacity": size, "conditions": [ready]}
    return {"metadata": {"name": f"node-{number:04}", "labels": labels}, "status": status}


def pod(number: int, nodes: int) -> Document:
    """Nodes are filled to different degrees; what waits asks for more than any node has, or for another label."""
    app = number // 50
    waits = number % WAITING == 0
    cpu = "40" if waits and app % 2 else f"{250 + 250 * (number % nodes % 5)}m"
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu, "memory": "2Gi"}}}
    spec: Document = {"containers": [container]}
    if waits and not app % 2:
        spec["nodeSelector"] = {"disk": f"ssd-{app % 3}"}
    if not waits:
        spec["nodeName"] = f"node-{number % nodes:04}"
    return {"metadata": {"name": f"app-{app}-{number % 50:02}", "labels": {"app": f"app-{app}"}}, "spec": spec}


async def fill(kubeconfig: Path, nodes: int, pods: int) -> None:
    client = connect(str(kubeconfig))
    limit = asyncio.Semaphore(AT_ONCE)
    ready = {"type": "Ready", "status": "True"}

    async def one(work: Coroutine[Any, Any, Any]) -> None:
        async with limit:
            await work

    async def create_node(document: Document) -> None:
        status = {"status": document["status"]}
        await client.create(NODES, document)
        await client.patch(NODES, document["metadata"]["name"], status, subresource="status")

    async def create_pod(document: Document, namespace: str) -> None:
        name = document["metadata"]["name"]
        await client.create(PODS, document, namespace)
        if "nodeName" in document["spec"]:
            running = {"status": {"phase": "Running", "conditions": [ready]}}
            await client.patch(PODS, name, running, namespace, subresource="status")

    try:
        for number in range(NAMESPACE_COUNT):
            await client.create(NAMESPACES, {"metadata": {"name": f"team-{number}"}})
        await asyncio.gather(*(one(create_node(node(number))) for number in range(nodes)))
        for first in range(0, pods, 5000):
            chunk = range(first, min(first + 5000, pods))
            made = (one(create_pod(pod(number, nodes), f"team-{number // 50 % NAMESPACE_COUNT}")) for number in chunk)
            await asyncio.gather(*made)
    finally:
        await client.close()


@contextmanager
def started(arguments: list[str], folder: Path, pattern: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A running command, and what the pattern finds in its output."""
    out = folder / f"{arguments[0]}.out"
    with out.open("w") as file:
        process = subprocess.Popen([*WHARF, *arguments], stdout=file, stderr=file, env=environment())
    try:
        found = until(lambda: re.search(pattern, out.read_text()) or process.poll(), arguments[0])
        assert isinstance(found, re.Match), out.read_text()
        yield process, found[0]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def bundle() -> tuple[int, int]:
    """Bytes of scripts and styles, plain and compressed."""
    files = [file.read_bytes() for file in STATIC.rglob("*") if file.suffix in (".js", ".css", ".html")]
    return sum(map(len, files)), sum(len(gzip.compress(data, 6)) for data in files)


def memory(process: int) -> int:
    """The memory of a process and its children in megabytes; what they share counts once."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
    own = re.search(r"^Pss: +(\d+)", rollup, re.MULTILINE)
    return (int(own[1]) // 1024 if own else 0) + sum(memory(int(child)) for child in children)


def visit(page: Page, path: str) -> None:
    """Opens a path; Chromium gives up when a network interface comes or goes, which has nothing to do with us."""
    for left in (2, 1, 0):
        try:
            page.goto(path, wait_until="commit")
            return
        except PlaywrightError as error:
            if "ERR_NETWORK_CHANGED" not in error.message or not left:
                raise


def first_paint(page: Page, path: str, shown: str) -> dict[str, float]:
    """Milliseconds until something and until the content is seen, and bytes transferred."""
    sizes: list[int] = []
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.on("Network.loadingFinished", lambda event: sizes.append(int(event["encodedDataLength"])))
    began = time.perf_counter()
    visit(page, path)
    page.locator(shown).first.wait_for()
    seen = 1000 * (time.perf_counter() - began)
    painted = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0")
    session.detach()
    return {"firstPaint": round(painted), "content": round(seen), "kilobytes": round(sum(sizes) / 1000)}


def latencies(page: Page, api: Api) -> list[float]:
    """Milliseconds from the answer of the API server to a change until the page shows it."""
    visit(page, "/nodes?node=node-0001")
    state = page.locator(".badge.warn", has_text="cordoned")
    expect(page.get_by_text("What if it is drained?")).to_be_visible()
    found = []
    for number in range(FLIPS):
        time.sleep(1.0 + number % 7 / 10)  # at different times of whatever the page does now and then
        body = {"spec": {"unschedulable": number % 2 == 0}}
        api.ask("PATCH", "/api/v1/nodes/node-0001", body, media="application/merge-patch+json")
        began = time.perf_counter()
        state.first.wait_for(state="visible" if number % 2 == 0 else "detached")
        found.append(1000 * (time.perf_counter() - began))
    return found


def frames(page: Page) -> dict[str, float]:
    """While the map of nodes is scrolled and the pointer moves over it."""
    visit(page, "/nodes")
    page.get_by_role("application").wait_for()
    for _ in range(4):
        page.get_by_label("Larger cells").click()
    time.sleep(1)
    page.evaluate(_PAN, PANNING)
    times = page.evaluate(_COUNT_FRAMES, PANNING)
    gaps = [after - before for before, after in pairwise(times)]
    return {
        "perSecond": round(len(gaps) / (sum(gaps) / 1000), 1),
        "median": round(statistics.median(gaps), 1),
        "worst": round(max(gaps), 1),
    }


def screenshots(browser: Browser, state: Any, address: str, folder: Path) -> None:
    """Every screen in both themes and two sizes."""
    folder.mkdir(parents=True, exist_ok=True)
    waiting = "/why/team-1/app-1-00"
    paths = {
        "overview": "/",
        "waiting": "/waiting",
        "why": waiting,
        "why-scores": "/why/team-1/app-1-01?compare=node-0001,node-0002",
        "what-if": "/what-if?pod=team-1%2Fapp-1-00",
        "nodes": "/nodes?node=node-0002",
        **{name: f"/{name}" for name in ("promises", "units", "fleet", "policy", "timeline")},
    }
    for theme in THEMES:
        for size, (width, height) in SIZES.items():
            context = browser.new_context(
                base_url=address,
                storage_state=state,
                color_scheme=theme,  # type: ignore[arg-type]  # one of two words
                viewport={"width": width, "height": height},
            )
            page = context.new_page()
            for name, path in paths.items():
                visit(page, path)
                expect(page.locator("main h1").first).to_be_visible(timeout=60_000)
                expect(page.get_by_text("Loading …")).to_have_count(0, timeout=60_000)
                time.sleep(0.5)
                page.screenshot(path=folder / f"{name}-{size}-{theme}.png", full_page=True)
            context.close()


def measure(nodes: int, pods: int, kept: Path | None, pictures: Path | None) -> Document:
    found: Document = {"nodes": nodes, "pods": pods, "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    plain, packed = bundle()
    found["bundle"] = {"kilobytes": round(plain / 1000), "gzip": round(packed / 1000)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = kept or folder / "data"
        filled = data / f"filled-{nodes}-{pods}"
        server = ["apiserver", "--data-dir", str(data), "--port", "0"]
        with started(server, folder, r"https://127\.0\.0\.1:\d+"):
            kubeconfig = data / "kubeconfig"
            if not filled.exists():
                began = time.perf_counter()
                asyncio.run(fill(kubeconfig, nodes, pods))
                filled.touch()
                print(f"filled in {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
            arguments = ["dashboard", "--kubeconfig", str(kubeconfig), "--link-file", str(folder / "link")]
            began = time.perf_counter()
            with started(arguments, folder, r"http://127\.0\.0\.1:\d+/open\?token=\S+") as (process, link):
                address = link.partition("/open")[0]
                with sync_playwright() as playwright:
                    browser = playwright.chromium.launch(executable_path=require("chromium"), args=["--no-sandbox"])
                    context = browser.new_context(base_url=address, viewport={"width": 1440, "height": 900})
                    context.set_default_timeout(120_000)
                    expect.set_options(timeout=120_000)
                    page = context.new_page()
                    visit(page, link)
                    cookie = next(each["value"] for each in context.cookies() if each["name"] == "wharf-session")
                    caller = Caller(address, cookie)
                    until(lambda: caller.get("/api/session")["ready"], "loaded", SECONDS)
                    found["loaded"] = round(time.perf_counter() - began, 1)
                    visit(page, "/")
                    expect(page.get_by_text("Why pods wait")).to_be_visible()
                    found["overview"] = first_paint(page, "/", "text=Why pods wait")
                    found["nodesScreen"] = first_paint(page, "/nodes", "canvas")
                    times = latencies(page, Api(kubeconfig))
                    found["update"] = {"median": round(statistics.median(times)), "worst": round(max(times))}
                    found["frames"] = frames(page)
                    found["memory"] = memory(process.pid)
                    if pictures is not None:
                        screenshots(browser, context.storage_state(), address, pictures)
                    browser.close()
    return found


def text(found: Document) -> str:
    screen = "first paint {firstPaint} ms, content after {content} ms, {kilobytes} kB transferred"
    lines = [
        f"{found['nodes']:,} nodes, {found['pods']:,} pods; {found['cores']} cores, load {found['load']} at the start",
        f"bundle          {found['bundle']['kilobytes']} kB, {found['bundle']['gzip']} kB with gzip",
        f"server loaded   after {found['loaded']} s, {found['memory']} MB at the end",
        f"overview        {screen.format(**found['overview'])}",
        f"nodes           {screen.format(**found['nodesScreen'])}",
        f"update          {found['update']['median']} ms (median), {found['update']['worst']} ms (worst)",
        f"panning         {found['frames']['perSecond']} frames per second, the longest {found['frames']['worst']} ms",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument(
        "--data", type=Path, metavar="FOLDER", help="where the API server's data is kept for the next time"
    )
    parser.add_argument("--screenshots", type=Path, metavar="FOLDER", help="also take pictures of every screen")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    options = parser.parse_args()
    if not is_built():
        sys.exit("the page is not built: make web")
    found = measure(options.nodes, options.pods, options.data, options.screenshots)
    print(json.dumps(found, indent=4) if options.output == "json" else text(found))


if __name__ == "__main__":
    main()
