"""From PPO, Sampling and Rewards in Chromium: drags, edited texts, links in a fresh browser, looks at every picture."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from app.bench import Bench
from app.params import PARAMS
from app.views.rewards.texts import packed
from tests.browser.test_explorer import drag, idle, opened, query, slider, watch

PICTURES = (
    *(("ppo", f"ppo_view={view}") for view in PARAMS["ppo_view"].choices),
    *(("ppo", f"ppo_view={view}") for view in ("critic&critic_view=vine", "trust&trust_view=step")),
    *(("ppo", f"ppo_view={view}") for view in ("dpo&dpo_view=optimum", "where&where_view=chain")),
    *(("clip", f"clip_view={view}") for view in PARAMS["clip_view"].choices),
    *(("clip", f"clip_view=levels&levels_view={view}") for view in ("weights", "identity")),
    *(("sampling", f"samp_view={view}") for view in PARAMS["samp_view"].choices),
    *(("rewards", f"rew_view={view}&w_fmt=1&w_lang=1&w_long=1") for view in PARAMS["rew_view"].choices),
)


@pytest.mark.parametrize(
    ("path", "name", "picture", "key"),
    [
        ("ppo", "lam", ".st-key-picture-critic .svg-container", "lam"),
        ("ppo?ppo_view=trust", "alpha", ".st-key-picture-bound .svg-container", "alpha"),
        ("ppo?ppo_view=rounds", "moment", ".st-key-picture-rounds .svg-container", "moment"),
        ("clip?clip_view=surrogates", "r", ".st-key-picture-surrogates .svg-container", "r"),
        ("clip?clip_view=quadrants", "r", ".st-key-picture-quadrants .svg-container", "r"),
        ("clip?clip_view=epochs", "lr", ".st-key-picture-epochs .svg-container", "lr"),
        ("clip?clip_view=levels&levels_view=weights", "pull_n", ".st-key-picture-pulls .svg-container", "pull_n"),
        ("sampling", "mix_g", ".st-key-picture-dynamic .svg-container", "mix_g"),
        ("sampling?samp_view=temperature", "temp", ".st-key-picture-mismatch .svg-container", "temp"),
        ("rewards", "w_tag", ".st-key-picture-scores .svg-container", "w_tag"),
        ("rewards?rew_view=lengths&bench=overlong", "long_max", ".st-key-picture-overlong .svg-container", "long_max"),
    ],
)
def test_the_picture_and_the_link_follow_a_slider_while_it_is_dragged(page, app_url, path, name, picture, key):
    opened(page, f"{app_url}/{path}")
    watch(page, picture)
    drag(page, name, start=0.15, end=0.85)
    page.wait_for_function("window.seen >= 3")  # the mouse button is still down
    page.wait_for_function("key => new URLSearchParams(location.search).has(key)", arg=key)
    page.mouse.up()
    idle(page)


def shown(page: Page) -> tuple[list[str], list[str]]:
    """What a reader reads off: the read-outs, and the numbers on the pictures."""
    idle(page)
    texts = page.locator(".js-plotly-plot .main-svg text").all_inner_texts()
    return page.get_by_test_id("stMetricValue").all_inner_texts(), texts


def test_an_edited_trajectory_is_restored_from_its_link(page, new_context, app_url):
    opened(page, f"{app_url}/ppo")
    page.get_by_label("Token rewards", exact=True).fill("0, 0.5, 0, 1")
    page.keyboard.press("Enter")
    page.wait_for_function("new URLSearchParams(location.search).get('tr') === '0,0.5,0,1'")
    page.locator(".row[data-id='tv:1'] .cell").fill("0.9")
    page.keyboard.press("Enter")
    page.wait_for_function("new URLSearchParams(location.search).get('tv') === '0.2,0.9,0.7'")
    slider(page, "lam").focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("new URLSearchParams(location.search).get('lam') === '0.89'")
    before = shown(page)
    second = opened(new_context().new_page(), page.url)
    assert shown(second) == before
    assert query(second) == query(page)


def test_a_list_grows_and_shrinks_and_its_cells_are_restored(page, new_context, app_url):
    opened(page, f"{app_url}/sampling?samp_view=temperature")
    page.locator(".row[data-id='count:probs'] .cell").fill("6")
    page.keyboard.press("Enter")
    page.locator(".row[data-id='probs:5'] .cell").fill("0.4")
    page.keyboard.press("Enter")
    page.wait_for_function("new URLSearchParams(location.search).get('probs').endsWith(',0.4')")
    page.locator(".row[data-id='probs:0'] .cell").fill("2")
    page.keyboard.press("Enter")
    expect(page.locator(".row[data-id='probs:0'] .error")).to_contain_text("The last value stays")
    before = shown(page)
    second = opened(new_context().new_page(), page.url)
    assert shown(second) == before


def test_an_edited_completion_is_scored_and_restored_from_its_link(page, new_context, app_url):
    opened(page, f"{app_url}/rewards")
    area = page.get_by_label("Completion 2", exact=True)
    area.fill("<think>17 + 28</think>\n<answer>45</answer>")
    page.keyboard.press("Control+Enter")
    page.wait_for_function("new URLSearchParams(location.search).has('bench_x')")
    expect(page.get_by_test_id("stMetricValue").nth(3)).to_have_text("2 of 4")
    before = shown(page)
    second = opened(new_context().new_page(), page.url)
    assert shown(second) == before
    expect(second.get_by_label("Completion 2", exact=True)).to_have_value("<think>17 + 28</think>\n<answer>45</answer>")


def test_the_scores_become_the_group_of_the_other_pages(page, app_url):
    opened(page, f"{app_url}/rewards?w_fmt=0.2")
    page.get_by_role("button", name="Use as the current group").click()
    page.wait_for_function("new URLSearchParams(location.search).has('gx')")
    page.get_by_test_id("stSidebarNav").get_by_role("link", name="Advantages", exact=True).click()
    expect(page.get_by_label("Rewards", exact=True)).to_have_value("1.2, 0.2, 0, 0")


def test_a_hostile_completion_is_text_and_never_markup(page, app_url):
    bad = "<img src=x onerror='window.pwned=1'> **b** $x^2$ [a](javascript:alert(1)) \\boxed{12}"
    text = packed(Bench(bad, bad, (bad, "<script>window.pwned=1</script>")))
    on = "&".join(f"{name}=1" for name in ("w_box", "w_num", "w_any", "w_fmt", "w_lang"))
    opened(page, f"{app_url}/rewards?bench_x={text}&{on}")
    assert page.locator("img[src='x']").count() == 0
    assert page.evaluate("window.pwned") is None
    expect(page.get_by_label("Completion 1", exact=True)).to_have_value(bad)
    page.get_by_text("Take away").click()
    expect(page.get_by_test_id("stCode")).to_contain_text("<img src=x")
    assert page.locator("img[src='x']").count() == 0
    assert page.evaluate("window.pwned") is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 1400])
def test_no_picture_is_wider_than_the_window_and_no_control_is_cut_off(new_context, app_url, scheme, width):
    page = new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    for path, view in PICTURES:
        opened(page, f"{app_url}/{path}?{view}")
        assert page.get_by_test_id("stException").count() == 0
        main = page.get_by_test_id("stMain")
        assert main.evaluate("node => node.scrollWidth <= node.clientWidth"), (path, view)
        wide = "nodes => nodes.filter(n => n.scrollWidth > n.clientWidth + 2).map(n => n.textContent.slice(0, 60))"
        assert page.locator(".katex-display").evaluate_all(wide) == [], (path, view)
        assert page.locator("[data-testid=stMetricLabel] p").evaluate_all(wide) == [], (path, view)
