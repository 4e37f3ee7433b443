"""Loss and Gradients in Chromium: tokens chosen by mouse and keys, pictures under drag, links in a fresh browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from app import link
from grpo_core import Group
from tests.browser.test_explorer import drag, idle, query, slider, watch

TABLE = ".token-table"


def opened(page: Page, url: str) -> Page:
    """Open a page and wait for its tokens or its picture."""
    page.goto(url)
    page.locator(f"{TABLE} .tt-row, .js-plotly-plot .main-svg, .stDataFrame").first.wait_for()
    idle(page)
    return page


def token(page: Page, completion: int, position: int):
    """One cell of the token table, counted from 1."""
    return page.locator(f"{TABLE} .tt-row").nth(completion - 1).locator(".tt-token").nth(position - 1)


def heading(page: Page, completion: int, position: int):
    return page.get_by_text(re.compile(rf"^Completion {completion}, token {position} of"))


def address(page: Page, name: str, value: str) -> None:
    """Wait until the address bar says so."""
    page.wait_for_function("([n, v]) => new URLSearchParams(location.search).get(n) === v", arg=[name, value])


def chosen(page: Page) -> list[str]:
    return page.locator(f"{TABLE} .tt-token[aria-selected=true]").all_inner_texts()


def test_a_click_on_a_token_updates_walk_and_link_and_a_fresh_browser_restores_it(page, new_context, app_url):
    opened(page, f"{app_url}/loss")
    token(page, 1, 7).click()
    address(page, "tok", "1,7")
    expect(heading(page, 1, 7).first).to_be_visible()
    idle(page)
    formula = page.locator(".katex-mathml").all_inner_texts()
    metrics = page.get_by_test_id("stMetricValue").all_inner_texts()
    second = opened(new_context().new_page(), page.url)
    expect(heading(second, 1, 7).first).to_be_visible()
    assert second.locator(".katex-mathml").all_inner_texts() == formula
    assert second.get_by_test_id("stMetricValue").all_inner_texts() == metrics
    assert chosen(second) == chosen(page)
    assert len(chosen(second)) == 1
    assert query(second) == query(page)


def test_arrow_keys_walk_through_the_tokens(page, app_url):
    opened(page, f"{app_url}/loss?tok=2,1")
    token(page, 2, 1).focus()
    page.keyboard.press("ArrowRight")
    address(page, "tok", "2,2")
    page.keyboard.press("ArrowDown")
    address(page, "tok", "3,2")
    page.keyboard.press("ArrowRight")
    address(page, "tok", "4,1")
    page.keyboard.press("End")
    address(page, "tok", "4,6")
    expect(heading(page, 4, 6).first).to_be_visible()
    expect(token(page, 4, 6)).to_be_focused()
    expect(page.locator(f"{TABLE} .tt-token[tabindex='0']")).to_have_count(1)


def test_the_tokens_follow_a_slider_while_it_is_dragged(page, app_url):
    opened(page, f"{app_url}/loss")
    watch(page, f"{TABLE} .tt-grid")
    drag(page, "beta", start=0.1, end=0.9)
    page.wait_for_function("window.seen >= 3")  # the mouse button is still down
    page.mouse.up()
    page.wait_for_function("new URLSearchParams(location.search).has('beta')")
    idle(page)


def test_the_log_probability_of_a_token_is_edited_and_the_group_travels(page, app_url):
    opened(page, f"{app_url}/loss?tok=1,7")
    before = token(page, 1, 7).inner_text()
    cell = page.locator(".row[data-id='token:logp:0:6'] .cell")
    cell.fill("-1.9")
    page.keyboard.press("Enter")
    page.wait_for_function("new URLSearchParams(location.search).has('gx')")
    expect(token(page, 1, 7)).not_to_have_text(before)
    cell.fill("3")
    page.keyboard.press("Enter")
    expect(page.locator(".row[data-id='token:logp:0:6'] .error")).not_to_be_empty()
    packed = query(page)["gx"]
    page.get_by_test_id("stSidebarNav").get_by_role("link", name="KL", exact=True).click()
    page.locator(".st-key-picture-kl .main-svg").first.wait_for()
    address(page, "gx", packed)


def test_hostile_tokens_are_text(page, app_url):
    tokens = ("<img src=x onerror='window.hacked=1'>", "$x^2$", "<b>bold</b>", "x" * 900, "\u202eabc")
    group = Group(prompt="p", tokens=(tokens, ("a",)), rewards=(1.0, 0.0), logp=((-1.0,) * 5, (-1.0,)))
    packed = link.pack({"whole": True, **group.to_json()})
    opened(page, f"{app_url}/loss?gx={packed}&tok=1,3")
    expect(token(page, 1, 1).locator(".tt-text")).to_have_text("<img␣src=x␣onerror='window.hack…")
    expect(token(page, 1, 3).locator(".tt-text")).to_have_text("<b>bold</b>")
    expect(page.locator(f"{TABLE} img, {TABLE} b")).to_have_count(0)
    assert page.evaluate("window.hacked") is None
    widest = page.locator(f"{TABLE} .tt-grid").evaluate("node => node.scrollWidth - node.clientWidth")
    assert widest <= 1
    for k in (1, 2, 4, 5):
        token(page, 1, k).click()
        address(page, "tok", f"1,{k}")
    expect(page.get_by_test_id("stMarkdownContainer").locator("img, b")).to_have_count(0)


def test_a_long_completion_shows_a_part_and_leads_on(page, app_url):
    many = 3000
    group = Group(
        prompt="p", tokens=(("w",) * many, ("a", "b")), rewards=(1.0, 0.0), logp=((-1.0,) * many, (-1.0, -1.0))
    )
    packed = link.pack({"whole": True, **group.to_json()})
    opened(page, f"{app_url}/loss?gx={packed}&tok=1,1")
    assert page.locator(f"{TABLE} .tt-token").count() < 1500
    page.get_by_role("button", name="2300 more →").click()
    address(page, "tok", "1,701")
    expect(heading(page, 1, 701).first).to_be_visible()
    page.get_by_role("button", name="← earlier").click()
    address(page, "tok", "1,1")


def test_the_tokens_are_saved_as_a_picture(page, app_url):
    opened(page, f"{app_url}/loss")
    page.get_by_text("Take away", exact=True).click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Picture (PNG)").click()
    assert waiting.value.suggested_filename == "grpo-lab-loss-tokens.png"
    with open(waiting.value.path(), "rb") as file:
        content = file.read()
    assert content.startswith(b"\x89PNG")
    assert len(content) > 5_000


def test_a_choice_of_the_other_recipe_is_switched_off_and_comes_back_from_the_link(page, new_context, app_url):
    opened(page, f"{app_url}/loss")
    page.get_by_text("TRL DAPO / paper DAPO", exact=True).click()
    box = page.get_by_role("checkbox", name=re.compile("^ε high"))
    expect(box).to_be_checked()
    page.get_by_text("ε high: 0.2 → 0.28").click()
    address(page, "kept", "epsilon_high")
    idle(page)
    second = opened(new_context().new_page(), page.url)
    expect(second.get_by_role("checkbox", name=re.compile("^ε high"))).not_to_be_checked()
    expect(second.get_by_role("checkbox", name=re.compile("^ddof"))).to_be_checked()
    assert (
        second.get_by_test_id("stMetricValue").all_inner_texts()
        == page.get_by_test_id("stMetricValue").all_inner_texts()
    )


@pytest.mark.parametrize(
    ("path", "name", "picture", "key"),
    [
        ("gradients", "rw:1", ".st-key-picture-gradients .barlayer", "rw"),
        ("gradients?grad_view=simplex", "rw:1", ".st-key-picture-simplex .scatterlayer", "rw"),
        ("gradients?grad_view=baseline", "gbase", ".st-key-picture-baseline .scatterlayer", "gbase"),
        ("gradients?grad_view=togo", "gamma", ".st-key-picture-to-go .barlayer", "gamma"),
    ],
)
def test_a_gradient_follows_a_slider_while_it_is_dragged(page, app_url, path, name, picture, key):
    opened(page, f"{app_url}/{path}")
    watch(page, picture)
    drag(page, name, start=0.2, end=0.8)
    page.wait_for_function("window.seen >= 3")
    page.wait_for_function("key => new URLSearchParams(location.search).has(key)", arg=key)
    page.mouse.up()
    idle(page)


def test_a_gradient_is_restored_from_its_link(page, new_context, app_url):
    opened(page, f"{app_url}/gradients?grad_view=simplex")
    slider(page, "pi:0").focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("new URLSearchParams(location.search).get('pi') === '0.99,1,1'")
    page.get_by_text("Away from the middle", exact=True).click()
    address(page, "pi", "0.6,0.3,0.1")
    idle(page)
    second = opened(new_context().new_page(), page.url)
    assert (
        second.get_by_test_id("stMetricValue").all_inner_texts()
        == page.get_by_test_id("stMetricValue").all_inner_texts()
    )
    assert query(second) == query(page)


@pytest.mark.parametrize(
    "path",
    [
        *(f"loss?loss_view={view}" for view in ("tokens", "compare", "whatif", "settings")),
        *(f"gradients?grad_view={v}" for v in ("actions", "simplex", "size", "baseline", "lengths", "togo")),
    ],
)
def test_no_picture_overflows_or_fails_at_1280_pixels(page, app_url, path):
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    opened(page, f"{app_url}/{path}")
    main = page.get_by_test_id("stMain")
    assert main.evaluate("node => node.scrollWidth - node.clientWidth") <= 1
    page.wait_for_function(  # once the fonts are there, no formula is wider than its place
        "() => [...document.querySelectorAll('.katex-display')].every(n => n.scrollWidth <= n.clientWidth + 1)"
    )
    assert page.locator(".katex-error").count() == 0
    assert problems == []
