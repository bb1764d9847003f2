"""The page in a browser: each screen's story, accessibility, widths, live updates, and whose rights count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests.dashboard.conftest import Up
from tests.support import missing, require

from wharfinger.dashboard.application import is_built

AXE = Path(__file__).resolve().parents[2] / "web/node_modules/axe-core/axe.min.js"
SCREENS = {
    "overview": ("/", "Overview"),
    "waiting": ("/waiting", "Waiting"),
    "why": ("/why/sample/report", "Why: sample/report"),
    "why-scores": ("/why/sample/on-spot?compare=node-1,node-2", "Why: sample/on-spot"),
    "what-if": ("/what-if?pod=sample%2Freport", "What if"),
    "nodes": ("/nodes?node=node-2", "Nodes"),
    "promises": ("/promises", "Promises"),
    "units": ("/units", "Units"),
    "fleet": ("/fleet", "Fleet"),
    "policy": ("/policy", "Policy"),
    "timeline": ("/timeline", "Timeline"),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = require("chromium")
    if not is_built():
        missing("chromium", "the page is not built: make web")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def session(up: Up, browser: Browser) -> dict[str, object]:
    """The cookies of somebody who opened the link."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(up.link())
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    state = context.storage_state()
    context.close()
    return dict(state)


@pytest.fixture
def page(up: Up, browser: Browser, session: dict[str, object]) -> Iterator[Page]:
    context = browser.new_context(
        base_url=up.address,
        storage_state=session,  # type: ignore[arg-type]  # as Playwright gave it
        viewport={"width": 1440, "height": 900},
    )
    context.set_default_timeout(30_000)
    expect.set_options(timeout=30_000)
    made = context.new_page()
    faults: list[str] = []
    made.on("pageerror", lambda error: faults.append(str(error)))
    made.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    yield made
    context.close()
    assert faults == []


def test_from_a_waiting_pod_to_a_change_that_helps(page: Page) -> None:
    page.goto("/")
    cause = page.get_by_role("listitem").filter(has_text="node affinity/selector").first
    expect(cause).to_contain_text("never")
    cause.get_by_role("link", name="Why?").click()
    expect(page.get_by_role("heading", name="Why: sample/report")).to_be_visible()
    expect(page.get_by_text("the pod or a node has to change")).to_be_visible()
    page.get_by_role("link", name="What if?").click()
    editor = page.get_by_label("Manifests to apply, as YAML")
    editor.fill("apiVersion: v1\nkind: Node\nmetadata: {name: node-3, labels: {disk: ssd}}\n")
    page.get_by_role("button", name="Try it").click()
    expect(page.get_by_text("sample/report would start on node-3.")).to_be_visible(timeout=90_000)
    shared = page.url
    page.goto(shared)  # a shared link shows the change and its result
    expect(page.get_by_text("sample/report would start on node-3.")).to_be_visible(timeout=90_000)
    page.get_by_role("button", name="Dry run").click()
    expect(page.get_by_text("would be applied")).to_be_visible()


def test_actions_instead_of_manifests(page: Page) -> None:
    page.goto("/what-if")
    expect(page.get_by_role("button", name="Try it")).to_be_disabled()
    page.get_by_label("action").select_option("add")
    expect(page.get_by_label("which")).to_have_value("node-1")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("button", name="Try it").click()
    expect(page.get_by_text("Pods of sample/batch")).to_be_visible(timeout=90_000)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save as Scenario").click()
    assert "kind: Scenario" in Path(saved.value.path()).read_text()


def test_the_editor_shows_faults_and_completes_fields(page: Page) -> None:
    page.goto("/what-if")
    editor = page.get_by_label("Manifests to apply, as YAML")
    editor.fill("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  containrs: []\n")
    expect(page.get_by_text("line 5: spec.containrs: unknown field")).to_be_visible()
    editor.fill("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  nodeS")
    editor.press("End")
    editor.press("Control+Space")
    expect(page.get_by_role("option", name="nodeSelector")).to_be_visible()
    editor.press("Enter")
    expect(editor).to_have_value("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  nodeSelector:")


def test_changes_appear_without_reloading(up: Up, page: Page) -> None:
    page.goto("/waiting")
    expect(page.get_by_role("link", name="sample/report", exact=True)).to_be_visible()
    up.api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "live"}})
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "900"}}}
    pod = {"metadata": {"name": "appears"}, "spec": {"containers": [container]}}
    assert up.api.ask("POST", "/api/v1/namespaces/live/pods", pod).status == 201
    expect(page.get_by_role("link", name="live/appears", exact=True)).to_be_visible()
    up.api.ask("DELETE", "/api/v1/namespaces/live/pods/appears")
    expect(page.get_by_role("link", name="live/appears", exact=True)).to_have_count(0)


def test_keys_and_search(page: Page) -> None:
    page.goto("/")
    expect(page.get_by_text("Why pods wait")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("n")
    expect(page.get_by_role("heading", name="Nodes", exact=True)).to_be_visible()
    page.keyboard.press("/")
    page.get_by_label("Search pods, nodes and screens").fill("checkout")
    expect(page.get_by_role("link", name="sample/checkout")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Why: sample/checkout")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()


def test_a_node_opens_from_the_map_by_keyboard(page: Page) -> None:
    page.goto("/nodes")
    cells = page.get_by_role("application")
    cells.focus()
    cells.press("ArrowRight")
    cells.press("ArrowRight")
    cells.press("Enter")
    expect(page.get_by_role("heading", name="node-2", exact=True)).to_be_visible()


def test_a_scenario_is_played(page: Page) -> None:
    page.goto("/timeline")
    page.get_by_role("button", name="Play a scenario").click()
    page.get_by_role("button", name="Play", exact=True).click()
    slider = page.get_by_label("Time", exact=True)
    expect(slider).to_be_visible(timeout=90_000)
    slider.press("End")
    expect(page.get_by_text("0 pods waiting, 5 on nodes")).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_screen_is_accessible_and_fits_every_width(up: Up, page: Page, artifacts: Path, theme: str) -> None:
    if not AXE.exists():
        missing("chromium", "axe-core is not installed: make web")
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]  # one of two words
    source = AXE.read_text()
    problems = []
    for name, (path, title) in SCREENS.items():
        page.set_viewport_size({"width": 1440, "height": 900})
        page.goto(path)
        expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()
        expect(page.get_by_text("Loading …")).to_have_count(0)
        page.evaluate(source)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        problems += [
            f"{name}: {each['id']}: {each['nodes'][0]['html']}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]
        page.screenshot(path=artifacts / f"{name}-1440-{theme}.png", full_page=True)
        for width in (390, 360):
            page.set_viewport_size({"width": width, "height": 844})
            over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            if over > 0:
                problems.append(f"{name}: {over} pixels too wide at {width}")
        page.screenshot(path=artifacts / f"{name}-360-{theme}.png", full_page=True)
    assert problems == []


def test_somebody_with_a_token_sees_only_his_own(up: Up, browser: Browser) -> None:
    caller = up.caller("mine", "view")
    context = browser.new_context(base_url=up.address)
    page = context.new_page()
    page.goto("/")
    page.get_by_label("bearer token").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("bearer token").fill(caller.token)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("No pod waits.")).to_be_visible()
    for path in ("/", "/waiting", "/nodes", "/promises", "/units", "/fleet", "/policy", "/timeline", "/why"):
        page.goto(path)
        expect(page.locator("main h1").first).to_be_visible()
        expect(page.get_by_text("Loading …")).to_have_count(0)
        assert "sample" not in page.locator("main").inner_text(), path
    page.goto("/why/sample/report")
    expect(page.get_by_role("alert")).to_contain_text("not found")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("bearer token")).to_be_visible()
    context.close()
