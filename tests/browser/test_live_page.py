"""A real run in Chromium: it starts, grows, survives a reload and a closed browser, is held, stopped and killed."""

from __future__ import annotations

import os
import signal
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Browser, Page, expect

from grpo_core.live.store import RunStore

POINTS = "(document.querySelector('.st-key-live-progress .live-plot')?.data?.[0]?.x?.length ?? 0)"
PATIENCE = 120_000  # milliseconds: a worker imports torch before its first step


def opened(page: Page, url: str) -> Page:
    page.set_default_timeout(PATIENCE)
    page.goto(url)
    page.locator(".st-key-live-panels .main-svg").first.wait_for()
    return page


def points(page: Page) -> int:
    """How many steps the main curve shows."""
    return int(page.evaluate(POINTS))


def wait_for_more(page: Page, than: int) -> None:
    page.wait_for_function(f"than => {POINTS} > than", arg=than, timeout=PATIENCE)


def shows(page: Page, steps: int) -> None:
    """Wait until the main curve has exactly that many steps."""
    page.wait_for_function(f"steps => {POINTS} === steps", arg=steps, timeout=PATIENCE)


def press(page: Page, name: str) -> None:
    page.locator(f".st-key-live-{name} button").first.click()


def says(page: Page, state: str) -> None:
    """Wait until the page names that state."""
    badge = page.locator(".st-key-live-board .stMarkdownBadge").first
    expect(badge).to_contain_text(state, timeout=PATIENCE)


def run_in_address(page: Page) -> str:
    page.wait_for_function("new URLSearchParams(location.search).has('run')", timeout=PATIENCE)
    return parse_qs(urlsplit(page.url).query)["run"][0]


def start(page: Page, app_url: str, store: RunStore) -> str:
    """Start the default run, but one that does not end by itself, and wait until its curve grows."""
    opened(page, f"{app_url}/live")
    before = {run.id for run in store.runs()}
    page.locator(".st-key-live-settings summary").click()
    steps = page.locator(".st-key-live-set-steps input")
    steps.fill("100000")
    steps.press("Enter")
    expect(page.locator(".st-key-live-settings summary")).to_contain_text("100000")
    press(page, "start")
    page.wait_for_function("known => { const run = new URLSearchParams(location.search).get('run');"
                           "return run && !known.includes(run); }", arg=sorted(before), timeout=PATIENCE)  # fmt: skip
    says(page, "running")
    wait_for_more(page, 2)
    return run_in_address(page)


def test_a_run_grows_survives_the_browser_and_stops(page, browser: Browser, app_url, store):
    run_id = start(page, app_url, store)
    shown = points(page)
    wait_for_more(page, shown)
    expect(page.locator(".st-key-live-strip .chip")).to_have_count(8)
    expect(page.locator(".st-key-live-tokens .tt-token").first).to_be_visible()
    press(page, "pause")
    says(page, "paused")

    held = store.run(run_id).step
    assert held >= shown
    page.reload()
    says(page, "paused")
    shows(page, held)
    assert run_in_address(page) == run_id
    page.context.close()
    second = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    opened(second, f"{app_url}/live")
    assert run_in_address(second) == run_id
    says(second, "paused")
    shows(second, held)
    press(second, "step")
    wait_for_more(second, held)
    press(second, "resume")
    wait_for_more(second, held + 2)
    assert store.run(run_id).step > held
    press(second, "stop")
    says(second, "stopped")
    expect(second.locator(".st-key-live-start button").first).to_be_enabled()
    assert store.run(run_id).state == "stopped"
    shows(second, store.run(run_id).step)
    second.context.close()


def test_zoom_group_and_step_stay_while_the_run_goes_on_and_a_killed_worker_is_failed(page, app_url, store):
    run_id = start(page, app_url, store)
    plot = page.locator(".st-key-live-progress .nsewdrag").first.bounding_box()
    assert plot is not None
    page.mouse.move(plot["x"] + 40, plot["y"] + 60)
    page.mouse.down()
    page.mouse.move(plot["x"] + 160, plot["y"] + 120, steps=4)
    page.mouse.up()
    zoom = "document.querySelector('.st-key-live-progress .live-plot')._fullLayout.xaxis.range"
    chosen = page.evaluate(zoom)
    assert chosen[0] > 1
    chip = page.locator(".st-key-live-strip .chip").nth(2)
    chip.click()
    expect(chip).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".st-key-live-at-step input")).to_be_visible()
    step = page.locator(".st-key-live-at-step input").input_value()
    wait_for_more(page, points(page) + 3)
    assert page.evaluate(zoom) == chosen
    assert page.locator(".st-key-live-at-step input").input_value() == step
    expect(chip).to_have_attribute("aria-pressed", "true")

    pid = store.run(run_id).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    says(page, "failed")
    run = store.run(run_id)
    assert run.state == "failed"
    assert run.step >= 3
    shows(page, run.step)
    expect(page.locator(".st-key-live-strip .chip")).to_have_count(8)
    press(page, "open")
    expect(page.get_by_role("heading", level=1)).to_have_text("Advantages", timeout=PATIENCE)


def test_a_setting_changes_and_a_token_is_looked_at_while_the_run_goes_on(page, app_url, store):
    run_id = start(page, app_url, store)
    page.locator(".st-key-live-knobs summary").first.click()
    rate = page.locator(".st-key-live-knob-learning_rate input")
    rate.fill("3e-4")
    wait_for_more(page, points(page) + 8)  # the board and the form are redrawn meanwhile
    assert rate.input_value() == "3e-4"
    page.evaluate("document.querySelector('.st-key-live-progress .live-plot').own = 1")
    press(page, "knobs-apply")
    stamp = page.locator(".st-key-live-progress .annotation-text", has_text="lr 3e-4")
    expect(stamp.first).to_be_visible()
    assert page.evaluate("document.querySelector('.st-key-live-progress .live-plot').own") == 1  # never built anew
    sent = [row["value"] for row in store.metrics(run_id) if row["event"] == "command" and row["name"] == "set"]
    assert {"learning_rate": 3e-4} in sent

    token = page.locator(".st-key-live-tokens .tt-row").nth(1).locator(".tt-token").nth(1)
    token.click()
    expect(page.locator(".st-key-live-at-step input")).to_be_visible()  # the step of the token is held
    expect(page.locator(".st-key-live-tokens [aria-selected='true']")).to_have_count(1)
    expect(page.locator(".st-key-live-groups .katex").first).to_be_visible()
    title = token.get_attribute("title") or ""
    assert title.count("\n") >= 6, title
    press(page, "stop")
    says(page, "stopped")
    expect(page.locator(".st-key-live-go-on button").first).to_be_enabled()
