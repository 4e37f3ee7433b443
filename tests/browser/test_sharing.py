"""Handing a view on in Chromium: the copied link, hidden parts, a locked view and its way out, the projector."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from app.asked import asked
from app.explain.questions import question
from tests.browser.test_explorer import idle, opened, query, slider

SHOWN = ("unbounded", "loss-zero", "token-mean", "top-p")


def share(page: Page) -> None:
    """Open the link's options."""
    page.locator(".st-key-share button").locator("visible=true").first.click()
    page.locator(".copy-link .address").wait_for()


def test_the_copied_link_holds_view_and_options_and_opens_them(page, new_context, context, app_url):
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened(page, f"{app_url}/clip?g=off-policy&r=2.4&sign=down")
    share(page)
    page.get_by_role("dialog").get_by_text("Lock the view").click()
    page.get_by_role("dialog").get_by_role("button", name="formula").click()
    expect(page.locator(".copy-link .address")).to_have_js_property(
        "value", f"{app_url}/clip?g=off-policy&sign=down&r=2.4&hide=formula&lock=1"
    )
    page.locator(".copy-link .copy").click()
    expect(page.locator(".copy-link .said")).to_have_text("Copied.")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert "lock" not in query(page)  # the options are the link's, not this page's
    second = opened(new_context().new_page(), copied)
    assert query(second) == {"g": "off-policy", "sign": "down", "r": "2.4", "hide": "formula", "lock": "1"}
    expect(slider(second, "r")).to_be_disabled()
    expect(slider(second, "r")).to_have_js_property("value", "2.4")
    assert second.locator(".katex-display").count() == 0


def test_a_locked_view_has_no_menu_and_the_way_out_gives_everything_back(page, app_url):
    opened(page, f"{app_url}/advantages?g=one-unscored&lock=1")
    expect(page.get_by_test_id("stSidebar")).to_be_hidden()
    expect(page.get_by_label("Rewards", exact=True)).to_be_disabled()
    for field in page.locator(".controls input, .controls .toggle").all():
        expect(field).to_be_disabled()
    page.get_by_role("button", name="Unlock").click()
    expect(page.get_by_test_id("stSidebar")).to_be_visible()
    expect(slider(page, "reward:0")).to_be_enabled()
    page.wait_for_function("!new URLSearchParams(location.search).has('lock')")
    assert query(page) == {"g": "one-unscored"}


def test_a_token_of_a_locked_view_can_still_be_looked_at(page, app_url):
    opened(page, f"{app_url}/loss?lock=1")
    page.locator(".tt-token").nth(3).click()
    page.wait_for_function("new URLSearchParams(location.search).has('tok')")
    idle(page)
    expect(page.locator(".tt-token").nth(3)).to_have_attribute("aria-selected", "true")


def test_hidden_controls_leave_the_picture_the_whole_width(page, app_url):
    opened(page, f"{app_url}/kl")
    narrow = page.locator(".st-key-picture-kl").bounding_box()["width"]
    opened(page, f"{app_url}/kl?hide=controls,check&d=1.5")
    expect(slider(page, "d")).to_be_hidden()
    assert page.locator(".st-key-picture-kl").bounding_box()["width"] > 1.3 * narrow
    page.get_by_role("button", name="Show everything").click()
    expect(slider(page, "d")).to_be_visible()
    expect(slider(page, "d")).to_have_js_property("value", "1.5")


def test_presentation_is_larger_stays_on_the_next_page_and_in_the_link(page, app_url):
    opened(page, f"{app_url}/clip")
    size = "parseFloat(getComputedStyle(document.querySelector('h1')).fontSize)"
    before = page.evaluate(size)
    page.locator(".st-key-present button").locator("visible=true").first.click()
    page.wait_for_function("new URLSearchParams(location.search).get('present') === '1'")
    page.wait_for_function(f"{size} > 1.2 * {before}")
    page.get_by_test_id("stSidebarNav").get_by_role("link", name="KL", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("KL")
    page.wait_for_function("new URLSearchParams(location.search).get('present') === '1'")
    idle(page)
    assert page.evaluate(size) > 1.2 * before
    assert page.get_by_test_id("stMain").evaluate("node => node.scrollWidth <= node.clientWidth")


@pytest.mark.parametrize("name", SHOWN)
def test_the_link_of_a_question_opens_the_state_that_it_declares(page, app_url, name):
    place = question(name).place
    page.goto(f"{app_url}/questions?g=hair-gap&q={name}")
    page.locator(".st-key-named-question").wait_for()
    link = page.locator(".st-key-named-question").get_by_role("link", name="See it")
    expect(link).to_have_attribute("href", place.href().removeprefix("?"))
    link.click()
    page.wait_for_function("page => location.pathname === '/' + page", arg=place.page)
    page.locator(".js-plotly-plot .main-svg, .tt-token").first.wait_for()
    wanted = {**place.query()}
    if wanted["g"] == "one-of-four":  # the first group needs no word
        del wanted["g"]
    page.wait_for_function(
        "wanted => JSON.stringify([...new URLSearchParams(location.search)].sort()) === JSON.stringify(wanted)",
        arg=sorted([k, v] for k, v in wanted.items()),
    )
    assert page.get_by_test_id("stAlertContentWarning").count() == 0
    page.locator(".st-key-undo button").locator("visible=true").first.click()  # back to the reader's own group
    page.wait_for_function("new URLSearchParams(location.search).get('g') === 'hair-gap'")


def test_questions_are_found_by_words_and_topic(page, app_url):
    page.goto(f"{app_url}/questions")
    cards = page.locator("[class*='st-key-question-'] h3")
    expect(cards.first).to_be_visible()
    everything = len(asked())
    expect(cards).to_have_count(everything)  # the page comes in pieces
    page.get_by_label("Search").fill("detach")
    page.keyboard.press("Enter")
    expect(cards).to_have_count(1)
    page.get_by_label("Search").fill("")
    page.keyboard.press("Enter")
    expect(cards).to_have_count(everything)
    page.get_by_role("radio", name="KL").or_(page.get_by_role("button", name="KL", exact=True)).first.click()
    page.wait_for_function("new URLSearchParams(location.search).get('topic') === 'kl'")
    expect(page.get_by_role("heading", level=2)).to_have_count(1)
