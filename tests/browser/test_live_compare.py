"""Comparing runs in Chromium: one thing is changed, the runs follow one another, their curves share the axes."""

from __future__ import annotations

from playwright.sync_api import Page, expect

PATIENCE = 180_000  # milliseconds: a worker imports torch before its first step
PLOT = "document.querySelector('.st-key-live-overlay .live-plot')"
POINTS = f"({PLOT}?.data ?? []).filter((trace) => trace.showlegend).map((trace) => trace.x.length)"


def small_settings(page: Page, app_url: str) -> None:
    """Make the settings of the next run those of a very small one."""
    page.goto(f"{app_url}/live")
    page.locator(".st-key-live-settings summary").click()
    for name, value in (("steps", "6"), ("prompts_per_step", "2")):
        field = page.locator(f".st-key-live-set-{name} input")
        field.fill(value)
        field.press("Enter")
    expect(page.locator(".st-key-live-settings summary")).to_contain_text("6 steps")


def open_the_form(page: Page) -> None:
    """Go to the part that compares runs and open the form that makes some: it is open only where none are shown."""
    page.get_by_role("radio", name="Compare").click()
    box = page.locator(".st-key-live-compare-make")
    expect(box).to_be_visible()
    if not page.locator(".st-key-live-compare-way").is_visible():
        box.locator("summary").click()
    expect(page.locator(".st-key-live-compare-way")).to_be_visible()


def queue_two(page):
    """Queue the two runs of the form and wait until both are drawn; return their ids and the names of their curves."""
    page.locator(".st-key-live-compare-queue button").first.click()
    page.wait_for_function("new URLSearchParams(location.search).get('runs')?.split(',').length === 2")
    page.wait_for_function(f"JSON.stringify({POINTS}) === '[6,6]'", timeout=PATIENCE)
    names = page.evaluate(f"{PLOT}.data.slice(0, 2).map((trace) => trace.name)")
    ids = page.evaluate("new URLSearchParams(location.search).get('runs')").split(",")
    return ids, names


def test_a_sweep_runs_by_itself_and_is_drawn_while_it_does(page, app_url, store):
    page.set_default_timeout(PATIENCE)
    small_settings(page, app_url)
    open_the_form(page)
    values = page.locator(".st-key-live-compare-values-learning_rate input")
    values.fill("1e-4, 1e-3")
    values.press("Enter")
    expect(page.locator(".st-key-live-compare-queue button").first).to_contain_text("Queue 2 runs")
    ids, names = queue_two(page)
    assert names == ["lr 1e-4", "lr 1e-3"]
    for _ in range(600):  # the last evaluation follows the last step
        if not any(store.run(name).active for name in ids):
            break
        page.wait_for_timeout(100)
    assert [store.run(name).state for name in ids] == ["finished", "finished"]
    assert store.run(ids[0]).pid == store.run(ids[1]).pid
    expect(page.locator(".st-key-live-compare [data-testid=stDataFrame]")).to_be_visible()

    page.get_by_role("radio", name="seconds").click()
    page.wait_for_function("new URLSearchParams(location.search).get('axis') === 'seconds'")
    seconds = [row["train_seconds"] for row in store.metrics(ids[0]) if row["event"] == "step"]
    page.wait_for_function(f"x => Math.abs({PLOT}?.data?.[0]?.x?.[5] - x) < 1e-6", arg=seconds[-1])

    page.goto(f"{app_url}/live?part=runs&run={ids[1]}")
    page.get_by_test_id("stPopover").filter(has_text="Delete").get_by_role("button").first.click()
    page.locator(".st-key-live-runs-delete-now button").first.click()
    expect(page.get_by_text("Deleted:")).to_be_visible()
    assert ids[1] not in [run.id for run in store.runs()]


def test_named_variants_follow_one_another_and_are_drawn_under_their_names(page, app_url, store):
    page.set_default_timeout(PATIENCE)
    small_settings(page, app_url)
    open_the_form(page)
    page.get_by_role("radio", name="Variants of your own").click()
    for setting, value in (("name", "wide"), ("group_size", "3"), ("prompts_per_step", "3")):
        field = page.locator(f".st-key-live-variant-2-{setting} input")
        field.fill(value)
        field.press("Enter")
    box = page.locator(".st-key-live-compare-make")
    expect(box.get_by_text("it cannot say which of the settings did it")).to_be_visible()
    ids, names = queue_two(page)
    assert names == ["as set · G 8, prompts 2", "wide · G 3, prompts 3"]
    assert [(store.run(name).name, dict(store.run(name).changed)) for name in ids] == [
        ("as set", {}),
        ("wide", {"group_size": 3, "prompts_per_step": 3}),
    ]
