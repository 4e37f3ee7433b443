"""The language switch in Chromium: all but the words stays, the address carries it, a fresh browser honours it."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.test_explorer import idle, opened, query, slider

CHINESE = "中文"


def rewards(page: Page) -> str:
    """The line of rewards as the page shows it."""
    return page.get_by_role("textbox", name="奖励").or_(page.get_by_role("textbox", name="Rewards")).first.input_value()


def test_a_switch_keeps_the_edited_group_and_a_fresh_browser_opens_it_in_chinese(page, app_url, new_context):
    opened(page, f"{app_url}/advantages")
    slider(page, "reward:1").fill("0.3")
    expect(page.get_by_role("textbox", name="Rewards", exact=True)).to_have_value("1, 0.3, 0, 0")
    page.get_by_role("radio", name=CHINESE).click()

    expect(page.get_by_role("heading", level=1)).to_have_text("优势")
    expect(page.get_by_role("link", name="比率与裁剪")).to_be_visible()
    idle(page)
    expect(page.locator(".st-key-choice-group input")).to_have_value("四个对一个（已修改）")
    assert rewards(page) == "1, 0.3, 0, 0"
    expect(page.locator(".js-plotly-plot").first).to_contain_text("均值")
    page.wait_for_function("location.search.includes('lang=zh') && document.documentElement.lang === 'zh-CN'")
    assert query(page)["lang"] == "zh"
    assert "gx" in query(page)

    other = opened(new_context().new_page(), page.url)
    expect(other.get_by_role("heading", level=1)).to_have_text("优势")
    assert rewards(other) == "1, 0.3, 0, 0"


def test_the_language_goes_along_to_every_page_and_back(page, app_url):
    opened(page, f"{app_url}/kl?lang=zh")
    for name, title in (("损失", "损失"), ("实时训练", "实时训练"), ("常见问题", "常见问题")):
        page.get_by_test_id("stSidebar").get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
        page.wait_for_function("location.search.includes('lang=zh')")
    page.get_by_role("radio", name="English").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Questions")
    page.wait_for_function("!location.search.includes('lang=') && document.documentElement.lang === 'en'")
