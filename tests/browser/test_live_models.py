"""A task file of the reader's own in Chromium: uploaded, trained on, and shown as the text it is."""

from __future__ import annotations

import json

from playwright.sync_api import expect

from app.live import models
from app.words import t

EVIL = "<img src=x onerror=document.title='pwned'> **{}** $x^2$"


def test_an_uploaded_file_trains_and_stays_text(page, app_url, store):
    page.goto(f"{app_url}/live")
    page.locator(".st-key-live-settings summary").click()
    page.locator(".st-key-live-set-steps input").fill("3")
    page.locator(".st-key-live-set-steps input").press("Enter")
    page.get_by_text(t("live.model.open"), exact=True).click()
    expect(page.get_by_text("0.11 M parameters, 0.11 M of them trained")).to_be_visible()
    kinds = page.locator(f".st-key-{models.key_of('task_kind')}")
    kinds.get_by_text(t("live.model.task_kind.upload"), exact=True).click()
    rows = [{"prompt": EVIL.format(i), "answer": str(i)} for i in range(20)]
    data = ("\n".join(map(json.dumps, rows)) + "\n{broken").encode()
    file = {"name": "<b>own</b>.jsonl", "mimeType": "application/json", "buffer": data}
    page.locator(f".st-key-{models.key_of('upload')} input[type=file]").set_input_files(file)
    expect(page.get_by_text(t("live.model.uploaded", name="<b>own</b>.jsonl"))).to_be_visible()
    expect(page.get_by_text(t("live.model.broken", count=1))).to_be_visible()
    page.locator(".st-key-live-start button").first.click()
    page.wait_for_function("new URLSearchParams(location.search).has('run')")
    expect(page.locator(".st-key-live-board .stMarkdownBadge").first).to_contain_text("finished")
    run = store.runs()[0]
    group = store.step_groups(run.id)["groups"][0]
    assert group["prompt"] in {row["prompt"] for row in rows}
    expect(page.locator(".st-key-live-groups").get_by_text("<img src=x").first).to_be_visible()
    assert page.title() != "pwned"
    assert page.locator("img[src=x]").count() == 0
