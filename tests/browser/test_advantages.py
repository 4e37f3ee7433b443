"""Advantages and Reduction in Chromium: drags on the new pictures, edited steps in a fresh browser, the look of all."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from app.params import PARAMS
from tests.browser.test_explorer import drag, idle, opened, query, slider, watch

PICTURES = (
    *(f"advantages?adv_view={view}" for view in PARAMS["adv_view"].choices),
    *(f"reduction?red_view={view}" for view in PARAMS["red_view"].choices),
    "advantages?adv_view=mixed&miss=0.9&mix_g=4&p=0.5",
    "advantages?adv_view=several&mc=1,0,0,1&mf=1,1,0,1&ml=-40,-12,-20,-75&mw=1,1,1",
    "advantages?adv_view=steps&steps=1~2,0~5,1~10_0~6,1~8_1~3,0~4,0~7,1~9&step_base=position",
    "advantages?recipe=verl_gdpo&g=half-and-half",
    "reduction?red_view=parts&ranks=4&parts=2&g=think-tags",
)


@pytest.mark.parametrize(
    ("path", "name", "picture", "key"),
    [
        ("advantages?adv_view=prompts", "levels:0", ".st-key-picture-prompts .barlayer", "levels"),
        ("advantages?adv_view=several", "mc:1", ".st-key-picture-several .barlayer", "mc"),
        ("advantages?adv_view=steps", "step:reward:0:0", ".st-key-picture-steps .barlayer", "steps"),
        ("advantages?adv_view=mixed", "miss", ".st-key-picture-kinds .barlayer", "miss"),
        ("reduction?red_view=parts", "length:0", ".st-key-picture-parts .barlayer", "gx"),
        ("reduction?red_view=masks&limit=8", "limit", ".st-key-picture-masks .heatmaplayer", "limit"),
    ],
)
def test_the_picture_and_the_link_follow_a_slider_while_it_is_dragged(page, app_url, path, name, picture, key):
    opened(page, f"{app_url}/{path}")
    before = query(page).get(key)
    watch(page, picture)
    drag(page, name, start=0.85, end=0.15)
    page.wait_for_function("window.seen >= 2")  # the mouse button is still down
    page.wait_for_function(
        "([key, before]) => ![null, before].includes(new URLSearchParams(location.search).get(key))", arg=[key, before]
    )
    page.mouse.up()
    idle(page)


def test_edited_steps_are_restored_from_their_link(page, new_context, app_url):
    opened(page, f"{app_url}/advantages?adv_view=steps")
    page.get_by_label("Steps of each completion", exact=True).fill("1 @ 2, 0.5 @ 4\n0 @ 3\n1 @ 1, 1 @ 6")
    page.keyboard.press("Control+Enter")
    page.wait_for_function("new URLSearchParams(location.search).get('steps') === '1~2,0.5~4_0~3_1~1,1~6'")
    page.locator(".row[data-id='step:end:0:0'] .cell").fill("3")
    page.keyboard.press("Enter")
    page.wait_for_function("new URLSearchParams(location.search).get('steps').startsWith('1~3,0.5~4_')")
    idle(page)
    expect(page.get_by_label("Steps of each completion", exact=True)).to_have_value(
        "1 @ 3, 0.5 @ 4\n0 @ 3\n1 @ 1, 1 @ 6"
    )
    shown = page.get_by_test_id("stMetricValue").all_inner_texts()
    second = opened(new_context().new_page(), page.url)
    assert second.get_by_test_id("stMetricValue").all_inner_texts() == shown
    assert query(second) == query(page)
    page.get_by_label("Steps of each completion", exact=True).fill("<b>1</b> @ 2")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_test_id("stAlert").first).to_contain_text("The last value stays")
    assert page.locator("[data-testid=stAlert] b").count() == 0
    assert page.get_by_test_id("stMetricValue").all_inner_texts() == shown


def test_the_way_to_another_page_takes_the_group_along(page, app_url):
    opened(page, f"{app_url}/reduction?red_view=masks&g=cut-and-empty&limit=4")
    page.get_by_role("link", name="Soft punishment of overlong completions").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Rewards")
    page.wait_for_function("new URLSearchParams(location.search).get('rew_view') === 'lengths'")
    assert query(page)["g"] == "cut-and-empty"
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Reduction")
    expect(slider(page, "limit")).to_have_js_property("value", "4")


@pytest.mark.parametrize(("scheme", "language"), [("light", "en"), ("dark", "zh")])
def test_no_picture_is_wider_than_the_window_and_no_formula_is_cut_off(new_context, app_url, scheme, language):
    page = new_context(color_scheme=scheme).new_page()
    wide = "nodes => nodes.filter(n => n.scrollWidth > n.clientWidth + 2).map(n => n.textContent.slice(0, 60))"
    for path in PICTURES:
        opened(page, f"{app_url}/{path}&lang={language}")
        assert page.get_by_test_id("stException").count() == 0
        assert page.get_by_test_id("stMain").evaluate("node => node.scrollWidth <= node.clientWidth"), path
        assert page.locator(".katex-display").evaluate_all(wide) == [], path
        assert page.locator("[data-testid=stMetricLabel] p").evaluate_all(wide) == [], path
        assert page.locator("[data-testid=stMetricValue] > div").evaluate_all(wide) == [], path
