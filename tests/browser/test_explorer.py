"""The explorer in Chromium: pictures follow a slider under drag, links restore the view, the group travels."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from app.link import encode, pack

PAGES = ("", "advantages", "clip", "kl", "reduction")
READY = ".js-plotly-plot .main-svg, .pipeline .line"


def opened(page: Page, url: str) -> Page:
    """Open a page and wait until its picture is there."""
    page.goto(url)
    page.locator(READY).first.wait_for()
    idle(page)
    return page


def idle(page: Page) -> None:
    """Wait until the script has run to its end."""
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)
    page.locator(".st-key-url-sync").wait_for(state="attached")


def slider(page: Page, name: str):
    """The live slider of a setting or a completion."""
    return page.locator(f".row[data-id='{name}'] input[type=range]")


def query(page: Page) -> dict[str, str]:
    """The parameters in the address bar."""
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def watch(page: Page, selector: str) -> None:
    """Count, in the browser, how often what `selector` shows changes."""
    page.evaluate(
        """selector => {
            const look = () => document.querySelector(selector)?.innerHTML;
            window.seen = 0; let last = look();
            const tick = () => { const now = look(); if (now !== last) { last = now; window.seen += 1; }
                                 requestAnimationFrame(tick); };
            tick();
        }""",
        selector,
    )


def drag(page: Page, name: str, *, start: float, end: float, steps: int = 40) -> None:
    """Press the slider's handle at `start` (a share of its width) and move it to `end`, without letting go."""
    box = slider(page, name).bounding_box()
    assert box is not None

    def at(share: float) -> tuple[float, float]:
        return box["x"] + 7 + (box["width"] - 14) * share, box["y"] + box["height"] / 2

    page.mouse.move(*at(start))
    page.mouse.down()
    for k in range(1, steps + 1):
        page.mouse.move(*at(start + (end - start) * k / steps))
        page.wait_for_timeout(25)


@pytest.mark.parametrize(
    ("path", "name", "picture", "key"),
    [
        ("advantages", "reward:1", ".st-key-picture-advantages .barlayer", "gx"),
        ("clip", "r", ".st-key-picture-clip .scatterlayer", "r"),
        ("kl", "d", ".st-key-picture-kl .scatterlayer", "d"),
        ("reduction", "length:0", ".st-key-picture-reduction .barlayer", "gx"),
    ],
)
def test_the_picture_and_the_link_follow_a_slider_while_it_is_dragged(page, app_url, path, name, picture, key):
    opened(page, f"{app_url}/{path}")
    watch(page, picture)
    drag(page, name, start=0.1, end=0.9)
    page.wait_for_function("window.seen >= 3")  # the mouse button is still down
    page.wait_for_function("key => new URLSearchParams(location.search).has(key)", arg=key)
    before = page.evaluate("history.length")
    page.mouse.up()
    idle(page)
    assert page.evaluate("history.length") == before


def test_the_last_position_of_a_drag_is_the_one_that_counts(page, app_url):
    opened(page, f"{app_url}/clip")
    drag(page, "r", start=0.5, end=1.0)
    page.mouse.up()
    page.wait_for_function("new URLSearchParams(location.search).get('r') === '3'")
    expect(slider(page, "r")).to_have_js_property("value", "3")
    expect(page.locator(".row[data-id='r'] .cell")).to_have_value("3.00")


def test_keys_move_a_slider_and_the_formula_follows(page, app_url):
    opened(page, f"{app_url}/kl?d=1")
    slider(page, "d").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("new URLSearchParams(location.search).get('d') === '1.01'")
    expect(page.get_by_test_id("stMetricValue").first).to_have_text("−1.010")


def test_a_link_restores_the_view_in_a_fresh_browser(page, new_context, app_url):
    opened(page, f"{app_url}/advantages")
    page.get_by_label("Rewards", exact=True).fill("1, 0.25, unscored, 0, 0.5")
    page.keyboard.press("Enter")
    expect(page.get_by_text("4 of 5")).to_be_visible()
    page.get_by_role("button", name="sample (ddof 1)").or_(page.get_by_role("radio", name="sample (ddof 1)")).click()
    page.wait_for_function("new URLSearchParams(location.search).get('ddof') === '1'")
    idle(page)
    shown = page.get_by_test_id("stMetricValue").all_inner_texts()
    bars = page.locator(".st-key-picture-advantages .barlayer text").all_inner_texts()
    link = page.url
    second = opened(new_context().new_page(), link)
    assert second.get_by_test_id("stMetricValue").all_inner_texts() == shown
    assert second.locator(".st-key-picture-advantages .barlayer text").all_inner_texts() == bars
    assert query(second) == query(page)


def test_a_group_edited_on_one_page_is_seen_on_the_others(page, app_url):
    opened(page, f"{app_url}/advantages")
    page.locator(".row[data-id='reward:0'] .cell").fill("0.5")
    page.keyboard.press("Enter")
    page.wait_for_function("new URLSearchParams(location.search).has('gx')")
    packed = query(page)["gx"]
    for name in ("Ratio and clip", "KL", "Reduction", "Home"):
        page.get_by_test_id("stSidebarNav").get_by_role("link", name=name, exact=True).click()
        expect(page.get_by_role("heading", level=1)).not_to_have_text("Advantages")
        page.locator(READY).first.wait_for()
        page.wait_for_function("gx => new URLSearchParams(location.search).get('gx') === gx", arg=packed)
    expect(page.locator(".pipeline .rewards .number").first).to_have_text("0.5")


def test_a_preset_sets_sliders_and_link_and_reload_keeps_both(page, app_url):
    opened(page, f"{app_url}/clip")
    page.get_by_text("A < 0 with δ", exact=True).click()
    page.wait_for_function("new URLSearchParams(location.search).get('delta') === '2'")
    expect(slider(page, "delta")).to_have_js_property("value", "2")
    page.reload()
    page.locator(READY).first.wait_for()
    expect(slider(page, "delta")).to_have_js_property("value", "2")
    assert query(page)["g"] == "off-policy"


def test_back_and_forward_restore_page_and_view(page, app_url):
    opened(page, f"{app_url}/clip?r=0.5")
    page.get_by_test_id("stSidebarNav").get_by_role("link", name="KL", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("KL")
    slider(page, "d").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("new URLSearchParams(location.search).has('d')")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Ratio and clip")
    expect(slider(page, "r")).to_have_js_property("value", "0.5")
    page.go_forward()
    expect(page.get_by_role("heading", level=1)).to_have_text("KL")
    expect(slider(page, "d")).to_have_js_property("value", "0.51")


def test_undo_takes_back_a_whole_drag(page, app_url):
    opened(page, f"{app_url}/clip")
    drag(page, "r", start=0.5, end=0.8)
    page.mouse.up()
    page.wait_for_function("new URLSearchParams(location.search).has('r')")
    page.locator(".st-key-undo button").first.click()
    page.wait_for_function("!new URLSearchParams(location.search).has('r')")
    expect(slider(page, "r")).to_have_js_property("value", "1.5")


def test_a_wrong_cell_says_so_and_keeps_the_last_value(page, app_url):
    opened(page, f"{app_url}/advantages")
    cell = page.locator(".row[data-id='reward:0'] .cell")
    for wrong in ("abc", ""):
        cell.fill(wrong)
        page.keyboard.press("Enter")
        expect(page.locator(".row[data-id='reward:0'] .error")).to_contain_text("The last value stays")
        expect(slider(page, "reward:0")).to_have_js_property("value", "1")
    cell.fill("unscored")
    page.keyboard.press("Enter")
    expect(page.get_by_text("3 of 4")).to_be_visible()
    expect(page.locator(".row[data-id='reward:0'] .error")).to_be_empty()


def test_a_hostile_token_is_text_and_never_markup(page, app_url):
    bad = "<img src=x onerror='window.pwned=1'>"
    data = {"prompt": f"{bad} $x^2$ [a](javascript:alert(1))", "answer": bad, "tokens": [[bad, "**b**"], ["$y$"]]}
    group = {**data, "rewards": [1, 0], "logp": [[-0.5, -0.5], [-0.5]], "ref_logp": [[-0.4, -0.7], [-0.5]]}
    link = encode({"gx": pack({"whole": True, **group}), "evil": bad, "r": bad})
    for path in PAGES:
        opened(page, f"{app_url}/{path}?{link}")
        assert page.locator("img[src='x']").count() == 0
        assert page.evaluate("window.pwned") is None
    opened(page, f"{app_url}/?{link}")
    expect(page.locator(".pipeline .prompt .text").first).to_have_text(data["prompt"])
    expect(page.locator(".pipeline .token").first).to_have_text(bad)
    expect(page.get_by_test_id("stAlert").first).to_be_visible()


def test_a_step_of_the_pipeline_opens_its_page_with_the_view(page, app_url):
    opened(page, f"{app_url}/?g=off-policy")
    page.locator(".pipeline button[data-page='clip:ratio']").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Ratio and clip")
    page.wait_for_function("new URLSearchParams(location.search).get('g') === 'off-policy'")


def test_data_and_picture_can_be_taken_away(page, app_url):
    opened(page, f"{app_url}/advantages")
    page.get_by_text("Take away").click()
    with page.expect_download() as data:
        page.get_by_role("button", name="Data (CSV)").click()
    assert data.value.path().read_text().startswith("completion,reward,advantage")
    with page.expect_download() as picture:
        page.locator(".save").click()
    assert picture.value.suggested_filename == "grpo-lab-advantages.png"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 1400])
def test_no_page_is_wider_than_the_window_and_none_shows_an_exception(new_context, app_url, scheme, width):
    page = new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    for path in PAGES:
        opened(page, f"{app_url}/{path}")
        assert page.get_by_test_id("stException").count() == 0
        main = page.get_by_test_id("stMain")
        assert main.evaluate("node => node.scrollWidth <= node.clientWidth")
        ink = page.evaluate("getComputedStyle(document.querySelector('.stApp')).backgroundColor")
        assert ink == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(16, 20, 24)")


def test_the_head_follows_the_body_and_the_body_the_head(page, app_url):
    opened(page, f"{app_url}/advantages")
    chooser = page.locator(".st-key-choice-group input")
    expect(page.locator(".st-key-undo button").first).to_be_disabled()
    drag(page, "reward:1", start=0.1, end=0.9)
    expect(page.locator(".st-key-undo button").first).to_be_enabled()  # at the first move, not on release
    expect(chooser).to_have_value("One right of four (edited)")
    page.mouse.up()
    idle(page)
    page.locator(".st-key-undo button").first.click()
    expect(chooser).to_have_value("One right of four")
    expect(page.locator(".row[data-id='reward:1'] .cell")).to_have_value(re.compile(r"0(\.00)?"))
    page.get_by_role("button", name="All right").or_(page.get_by_text("All right", exact=True)).first.click()
    expect(page.locator(".row[data-id='reward:1'] .cell")).to_have_value(re.compile(r"1(\.00)?"))
    page.wait_for_function("new URLSearchParams(location.search).get('g') === 'all-right'")


def test_a_pasted_group_is_shown_as_text_and_a_wrong_one_is_refused(page, app_url):
    opened(page, f"{app_url}/advantages")
    page.locator(".st-key-open-group button").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox").fill("completion,token\n1,a")
    dialog.get_by_role("button", name="Show this group").first.click()
    expect(dialog.get_by_text("The first row must name the columns")).to_be_visible()
    dialog.get_by_role("textbox").fill(
        'completion,token,logp,reward\n1,<img src=x onerror="window.evil=1">,-1,1\n2,$x$,-2,0'
    )
    dialog.get_by_role("button", name="Show this group").first.click()
    expect(dialog).to_have_count(0)
    page.wait_for_function("new URLSearchParams(location.search).has('gx')")
    page.get_by_test_id("stSidebarNav").get_by_role("link", name="Loss", exact=True).click()
    expect(page.locator(".tt-token").first).to_contain_text("<img")
    assert page.evaluate("window.evil") is None
