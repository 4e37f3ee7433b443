"""Barriers: axe-core on every page in both themes, and the keyboard on what we built ourselves."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from app.params import PARAMS
from tests.browser.test_explorer import idle, opened, slider

AXE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
PAGES = ("", "advantages", "clip", "kl", "reduction", "loss", "gradients", "ppo", "sampling", "rewards", "questions")
VIEWS = (
    *(f"{page}?{name}={view}" for page, name in (
        ("advantages", "adv_view"), ("clip", "clip_view"), ("kl", "kl_view"), ("reduction", "red_view"),
        ("loss", "loss_view"), ("gradients", "grad_view"), ("ppo", "ppo_view"), ("sampling", "samp_view"),
        ("rewards", "rew_view"),
    ) for view in PARAMS[name].choices[1:]),
    "ppo?critic_view=vine", "ppo?ppo_view=trust&trust_view=step", "ppo?ppo_view=dpo&dpo_view=optimum",
    "ppo?ppo_view=where&where_view=chain", "clip?lock=1", "kl?hide=controls", "loss?present=1", "clip?r=abc",
    "questions?q=unbounded", "?lang=zh", "advantages?g=cut-and-empty&lang=zh",
)  # fmt: skip
STREAMLITS_OWN = {
    # Streamlit 1.67 puts each section of the menu in a <div> inside the <ul>; nothing outside can change that.
    "list": "[data-testid='stSidebarNavItems']",
    "listitem": "[data-testid='stSidebarNavItems'] li",
}
"""Violations that only Streamlit can mend: rule, and the elements that it is allowed for. Nothing else is."""
LOOK = """async (known) => {
  const found = await axe.run(document, { resultTypes: ["violations"] });
  const mended = (rule, node) => {
    const inPage = node.target.length === 1 && typeof node.target[0] === "string";
    return !(known[rule] && inPage && document.querySelector(node.target[0])?.matches(known[rule]));
  };
  return found.violations
    .filter((one) => ["serious", "critical"].includes(one.impact))
    .map((one) => [one.id, one.nodes.filter((node) => mended(one.id, node)).map((node) => node.html.slice(0, 200))])
    .filter(([, nodes]) => nodes.length);
}"""


def barriers(page: Page) -> list[Any]:
    """Every serious or critical violation on the page as it stands, with the elements.

    A formula changes its width when its letters arrive; app/components/page_reach.js looks at it 250 ms later.
    """
    page.evaluate("document.fonts.ready.then(() => new Promise((done) => setTimeout(done, 400)))")
    page.evaluate(AXE)
    return page.evaluate(LOOK, STREAMLITS_OWN)


def everything_open(page: Page) -> None:
    """Open what is folded, so that it is looked at too."""
    page.wait_for_timeout(600)
    for box in page.get_by_test_id("stExpander").locator("summary").all():
        box.click()
        idle(page)
    for code in page.get_by_test_id("stCode").all():
        code.locator("code").wait_for()
    for button in page.locator(".save").all():
        expect(button).not_to_be_empty()
    page.wait_for_timeout(600)


def shown(page: Page, url: str) -> Page:
    page.goto(url)
    page.get_by_role("heading", level=1).first.wait_for()
    idle(page)
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_no_page_has_a_serious_barrier(new_context, app_url, path, scheme):
    page = shown(new_context(color_scheme=scheme).new_page(), f"{app_url}/{path}")
    everything_open(page)
    assert barriers(page) == []


@pytest.mark.parametrize("path", VIEWS)
def test_no_view_has_a_serious_barrier(page, app_url, path):
    shown(page, f"{app_url}/{path}")
    everything_open(page)
    assert barriers(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_live_page_has_no_serious_barrier(new_context, app_url, scheme):
    page = new_context(color_scheme=scheme).new_page()
    page.goto(f"{app_url}/live")
    page.get_by_role("heading", level=1).first.wait_for()
    page.locator(".st-key-live-settings summary").click()
    page.wait_for_timeout(1500)
    assert barriers(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_options_of_a_link_have_no_serious_barrier(new_context, app_url, scheme):
    page = shown(new_context(color_scheme=scheme).new_page(), f"{app_url}/clip?present=1")
    page.locator(".st-key-share button").locator("visible=true").first.click()
    page.locator(".copy-link .address").wait_for()
    page.wait_for_timeout(600)
    assert barriers(page) == []


def test_axe_would_find_what_is_wrong(page, app_url):
    """The check itself: a button without a name and pale text must be found, also next to what Streamlit may do."""
    shown(page, f"{app_url}/clip")
    wrong = "<button></button><p style='color: #ccc; background: #fff'>pale</p><ul><div>no item</div></ul>"
    page.get_by_test_id("stSidebarNav").evaluate("(node, wrong) => node.insertAdjacentHTML('afterend', wrong)", wrong)
    assert {rule for rule, _ in barriers(page)} == {"button-name", "color-contrast", "list"}


def test_a_slider_is_reached_and_moved_by_the_keyboard_and_says_its_name_and_value(page, app_url):
    opened(page, f"{app_url}/clip")
    own = slider(page, "r")
    expect(own).to_have_accessible_name("Ratio r")
    expect(own).to_have_attribute("aria-valuetext", "1.50")
    page.locator(".row[data-id='r'] .help").focus()
    for _ in range(3):
        page.keyboard.press("Tab")
        if own.evaluate("node => node.getRootNode().activeElement === node"):
            break
    for key, value in (("ArrowRight", "1.51"), ("PageUp", None), ("Home", "0"), ("End", "3")):
        page.keyboard.press(key)
        if value is not None:
            page.wait_for_function("value => new URLSearchParams(location.search).get('r') === value", arg=value)
    expect(own).to_have_attribute("aria-valuetext", "3.00")
    assert own.evaluate("node => node.getRootNode().activeElement === node")  # redrawing did not take the focus


def test_a_help_text_appears_on_focus_and_belongs_to_the_slider(page, app_url):
    opened(page, f"{app_url}/clip")
    tip = page.locator(".row[data-id='r'] .tip")
    expect(tip).to_be_hidden()
    page.locator(".row[data-id='r'] .help").focus()
    expect(tip).to_be_visible()
    expect(slider(page, "r")).to_have_accessible_description(tip.inner_text())


def test_the_token_table_is_one_stop_of_the_tab_key_and_is_walked_by_arrows(page, app_url):
    opened(page, f"{app_url}/loss?tok=1,3")
    tokens = page.locator(".tt-token")
    tokens.first.wait_for()
    expect(page.locator(".tt-token[tabindex='0']")).to_have_count(1)
    stop = page.locator(".tt-token[tabindex='0']")
    stop.focus()
    page.keyboard.press("Home")
    expect(tokens.nth(0)).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(tokens.nth(1)).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.wait_for_function("new URLSearchParams(location.search).get('tok')?.startsWith('2,')")
    expect(page.locator(".tt-token:focus")).to_have_attribute("aria-selected", "true")
    expect(page.locator(".tt-token[tabindex='0']")).to_have_count(1)


def test_a_formula_that_scrolls_is_reached_by_the_keyboard(new_context, app_url):
    wide, narrow = ({"width": width, "height": 900} for width in (1600, 700))
    page = opened(new_context(viewport=wide).new_page(), f"{app_url}/loss")
    formula = page.locator(".katex-display").first
    expect(formula).not_to_have_attribute("tabindex", "0")
    page.set_viewport_size(narrow)
    expect(formula).to_have_attribute("tabindex", "0")


def test_a_picture_says_what_it_shows(page, app_url):
    opened(page, f"{app_url}/clip")
    expect(page.get_by_role("figure", name="Clipped objective and its slope")).to_be_attached()
