"""The KL page in Chromium: every picture follows a drag, links restore edits, nothing is cut off."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from app.params import PARAMS
from tests.browser.test_explorer import drag, idle, opened, query, watch

THREE = "cur=0.5,0.3,0.2&ref=0.2,0.3,0.5"


@pytest.mark.parametrize(
    ("view", "name", "picture"),
    [
        ("distribution", "ref:1", "distribution"),
        ("why", "cur:0", "kl-sums"),
        ("trap", "cur:1", "kl-trap"),
        ("offpolicy", "kl_old:2", "kl-off"),
        ("refresh", "kl_n", "kl-refresh"),
    ],
)
def test_the_picture_and_the_link_follow_a_slider_while_it_is_dragged(page, app_url, view, name, picture):
    opened(page, f"{app_url}/kl?kl_view={view}&{THREE}&kl_old=0.4,0.4,0.2")
    watch(page, f".st-key-picture-{picture} .main-svg")
    before = query(page).get(name.partition(":")[0])
    drag(page, name, start=0.2, end=0.8)
    page.wait_for_function("window.seen >= 3")  # the mouse button is still down
    page.wait_for_function(
        "([key, before]) => (new URLSearchParams(location.search).get(key) ?? undefined) !== before",
        arg=[name.partition(":")[0], before],
    )
    page.mouse.up()
    idle(page)
    assert page.get_by_test_id("stException").count() == 0


def test_an_edited_old_policy_is_restored_from_its_link(page, new_context, app_url):
    opened(
        page, f"{app_url}/kl?kl_view=offpolicy&{THREE}"
    )  # the old policy has two events in the link: the third is shown
    page.locator(".row[data-id='kl_old:2'] .cell").fill("0.9")
    page.keyboard.press("Enter")
    page.wait_for_function("new URLSearchParams(location.search).get('kl_old') === '0.4,0.6,0.9'")
    page.get_by_text("r, detached", exact=True).first.click()
    page.wait_for_function("new URLSearchParams(location.search).get('kl_w') === 'detached'")
    idle(page)
    shown = page.get_by_test_id("stMetricValue").all_inner_texts()
    second = opened(new_context().new_page(), page.url)
    expect(second.locator(".row[data-id='kl_old:2'] .cell")).to_have_value("0.90")
    assert second.get_by_test_id("stMetricValue").all_inner_texts() == shown
    assert query(second) == query(page)


def test_the_way_to_the_kl_in_the_reward_opens_it_for_this_group(page, app_url):
    opened(page, f"{app_url}/kl?g=off-policy")
    page.locator(".st-key-kl-elsewhere a").click()
    page.locator(".st-key-picture-where .main-svg").first.wait_for()
    assert query(page)["g"] == "off-policy"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 1400])
def test_no_picture_is_wider_than_the_window_and_no_formula_is_cut_off(new_context, app_url, scheme, width):
    page = new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    for view in PARAMS["kl_view"].choices:
        opened(page, f"{app_url}/kl?kl_view={view}&{THREE}&kl_w=clipped")
        main = page.get_by_test_id("stMain")
        assert main.evaluate("node => node.scrollWidth <= node.clientWidth"), view
        wide = "nodes => nodes.filter(n => n.scrollWidth > n.clientWidth + 2).map(n => n.textContent.slice(0, 60))"
        assert page.locator(".katex-display").evaluate_all(wide) == [], view
        assert page.locator("[data-testid=stMetricLabel] p").evaluate_all(wide) == [], view
