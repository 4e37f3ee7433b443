"""The Rewards page under AppTest: every preset, edited and hostile texts, the current group, snippets run."""

from __future__ import annotations

import json
import random
import re

import numpy as np
import pytest

from app import link, presets
from app.bench import MAX_TEXTS, Bench, bench_cases
from app.figures import rewards as figures
from app.figures.base import LIGHT
from app.numbers import MISSING
from app.params import PARAMS
from app.views.rewards import texts
from app.words import t
from grpo_core.rewards import SCRIPTS
from tests.app.driving import check_words, link_of, metrics, missing, pictures, printed, sound, typed_wrong

NAMES = tuple(presets.names("rewards"))
HOSTILE = "<img src=x onerror='window.pwned=1'> **b** $x^2$ [a](javascript:alert(1)) \\boxed{12} </answer>"
SCORES = [n for n in NAMES if presets.presets("rewards")[n]["set"]["rew_view"] == "scores"]


def shown_texts(at) -> list[str]:
    """Return the completions in the text areas."""
    return [area.value for area in at.text_area if area.key.startswith("bench-text")]


def reopened(at) -> str:
    """Return the completions in the state, as in a link."""
    return at.session_state["grpo_lab"].view.chosen.get("bench_x")


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_opens_from_its_link_and_is_marked(open_page, name):
    at = open_page("rewards", link_of("rewards", name))
    sound(at)
    assert not at.warning
    assert not at.error
    assert pictures(at)
    assert at.info[0].value
    assert at.latex[0].value
    assert at.pills[0].value == name


def test_presets_can_be_clicked_one_after_the_other(open_page):
    at = open_page("rewards")
    for view in PARAMS["rew_view"].choices:
        at.segmented_control(key="choice-rew_view").set_value(view).run()
        for name in (n for n in NAMES if presets.presets("rewards")[n]["set"]["rew_view"] == view):
            at.pills(key=f"preset-rewards-{view}").set_value(name).run()
            sound(at)
            assert at.pills(key=f"preset-rewards-{view}").value == name


@pytest.mark.parametrize("name", SCORES)
def test_every_snippet_prints_rewards_and_advantages(open_page, name):
    at = open_page("rewards", link_of("rewards", name))
    at.session_state["take-rewards"] = True
    at.run()
    numbers = printed(at.code[0].value)
    cells = [a["text"] for a in pictures(at)[0]["layout"]["annotations"]]
    shown = [text for text in cells if text[-1:].isdigit() and len(text.rsplit(".", 1)[-1]) == 3]
    assert shown or name == "undecided"
    assert missing(shown, numbers) == []
    assert typed_wrong(at, "rewards", "scores")


@pytest.mark.parametrize(
    "recipe", ["remax_paper", "opo_paper", "reinforce_plus_plus_paper", "gdpo_paper", "rloo_paper"]
)
def test_every_kind_of_advantage_is_shown_and_printed(open_page, recipe):
    at = open_page("rewards", {"recipe": recipe, "w_fmt": "0.5"})
    at.session_state["take-rewards"] = True
    sound(at.run())
    found = printed(at.code[0].value)
    cells = [a["text"] for a in pictures(at)[0]["layout"]["annotations"]]
    result = at.latex[0].value.rsplit("=", 1)[1]
    shown = [text for text in cells if re.fullmatch(r"[+\u2212]?\d+\.\d{3}", text)]
    assert len(shown) >= 2
    assert missing([*shown, result], found) == []


@pytest.mark.parametrize(
    ("name", "section"),
    [
        ("honest", "The completions that mark the right answer"),
        ("format-only", "earns as much as completion 1 although it marks no right answer"),
        ("misread", "is paid in full although it gives no such answer"),
        ("anywhere", "reward hacking"),
        ("bonus", "reward hacking"),
        ("missed", "the parser did not see it"),
        ("empty-unscored", "could not be scored"),
        ("overlong", "another component takes something off"),
        ("undecided", "No verifier can decide"),
    ],
)
def test_every_failure_is_named(open_page, name, section):
    assert section in open_page("rewards", link_of("rewards", name)).info[0].value


def test_unscored_is_shown_as_such_and_never_as_zero(open_page):
    at = open_page("rewards", link_of("rewards", "empty-unscored"))
    cells = [a["text"] for a in pictures(at)[0]["layout"]["annotations"]]
    assert cells.count(t("chart.unscored")) == 4  # two completions: their component and their reward
    assert metrics(at)["scored"] == "2 of 4"
    at = open_page("rewards", link_of("rewards", "undecided"))
    assert metrics(at)["mean"] == "–"
    assert metrics(at)["scored"] == "0 of 4"


def test_the_bench_becomes_the_current_group_of_every_page(open_page):
    at = open_page("rewards", link_of("rewards", "honest"))
    at.button(key="bench-use").click().run()
    sound(at)
    group = at.session_state["grpo_lab"].view.group
    assert group.rewards == (1.2, 0.2, 0.0, 0.0)
    assert group.reward_parts == {"tag": (1.0, 0.0, 0.0, 0.0), "fmt": (1.0, 1.0, 0.0, 0.0)}
    assert group.answer == "45"
    assert at.button(key="bench-use").disabled
    there = open_page("advantages", link.to_query(at.session_state["grpo_lab"].view))
    sound(there)
    assert there.text_input(key="rewards-line").value == "1.2, 0.2, 0, 0"


def test_unscored_completions_enter_the_group_as_unscored(open_page):
    at = open_page("rewards", link_of("rewards", "empty-unscored"))
    at.button(key="bench-use").click().run()
    group = at.session_state["grpo_lab"].view.group
    assert group.rewards == (1.0, None, None, 0.0)
    assert group.tokens[1] == ()


def test_the_current_group_can_be_put_on_the_bench_and_back(open_page):
    at = open_page("rewards", {"g": "think-tags", "w_fmt": "1"})
    at.button(key="bench-from").click().run()
    sound(at)
    before = at.session_state["grpo_lab"].view.group
    assert shown_texts(at) == [c.removesuffix("<eos>") for c in before.completions]
    at.button(key="bench-use").click().run()
    after = at.session_state["grpo_lab"].view.group
    assert after.tokens == before.tokens
    for mine, theirs in zip(after.logp, before.logp, strict=True):
        assert mine == pytest.approx(theirs, abs=1e-6)


def test_an_edited_completion_is_scored_kept_in_the_link_and_undone(open_page):
    at = open_page("rewards", link_of("rewards", "honest"))
    at.text_area(key="bench-text-3").set_value("<think>!</think><answer>45</answer>").run()
    sound(at)
    assert metrics(at)["right_answers"] == "2 of 4"
    again = open_page("rewards", {**link_of("rewards", "honest"), "bench_x": reopened(at)})
    sound(again)
    assert metrics(again) == metrics(at)
    at.button(key="undo").click().run()
    assert metrics(at)["right_answers"] == "1 of 4"
    assert reopened(at) is None


def test_the_gold_answer_can_be_changed_and_taken_away(open_page):
    at = open_page("rewards", link_of("rewards", "honest"))
    at.text_input(key="bench-gold").set_value("44").run()
    assert metrics(at)["right_answers"] == "1 of 4"
    at.text_input(key="bench-gold").set_value("").run()
    sound(at)
    assert metrics(at)["right_answers"] == "–"


def test_completions_are_added_removed_and_pasted(open_page):
    at = open_page("rewards")
    for _ in range(MAX_TEXTS - 4):
        at.button(key="bench-add").click().run()
    sound(at)
    assert at.button(key="bench-add").disabled
    at.text_area(key="bench-paste").set_value("<answer>45</answer>\n---\nsecond\nline\n-----\nthird")
    at.button(key="bench-use-paste").click().run()
    sound(at)
    assert shown_texts(at) == ["<answer>45</answer>", "second\nline", "third"]
    at.text_area(key="bench-paste").set_value(json.dumps(["a", "b"]))
    at.button(key="bench-use-paste").click().run()
    at.button(key="bench-remove").click().run()
    assert at.button(key="bench-remove").disabled
    sound(at)


@pytest.mark.parametrize(
    "pasted", ["\n---\n".join("x" * 9), "x" * 5000, json.dumps(["a"] * 9), "[" * 2000, "{}", "[1, 2]", "null", ""]
)
def test_a_paste_that_does_not_fit_keeps_the_last_completions_or_is_one_text(open_page, pasted):
    at = open_page("rewards")
    at.text_area(key="bench-paste").set_value(pasted)
    at.button(key="bench-use-paste").click().run()
    sound(at)
    kept = shown_texts(at)
    if at.error:
        assert tuple(kept) == bench_cases()["sum"].texts
    else:
        assert kept == [pasted]


def test_completions_too_long_for_a_link_stay_and_the_page_says_so(open_page):
    at = open_page("rewards")
    rng = random.Random(0)
    long = json.dumps(["".join(rng.choices("abcdefghijklmnopqrstuvwxyz ", k=3900)) for _ in range(MAX_TEXTS)])
    at.text_area(key="bench-paste").set_value(long)
    at.button(key="bench-use-paste").click().run()
    sound(at)
    assert shown_texts(at) == json.loads(long)
    assert t("bench.left_out") in [c.value for c in at.caption]
    assert "bench_x" not in link.to_query(at.session_state["grpo_lab"].view)


def test_a_bench_too_large_for_a_group_says_so_and_the_last_group_stays(open_page):
    at = open_page("rewards", {"bench_x": texts.packed(Bench("", "", ("字" * 3999,) * MAX_TEXTS))})
    before = at.session_state["grpo_lab"].view.group
    at.button(key="bench-use").click().run()
    sound(at)
    assert "larger than the explorer shows" in at.error[0].value
    assert at.session_state["grpo_lab"].view.group == before


def test_hostile_text_is_scored_as_text_and_never_drawn_as_markup(open_page):
    bench = Bench(HOSTILE, HOSTILE, (HOSTILE, "$$\\frac{1}{0}$$", "\u202e\x00", "=1+1"))
    query = {
        **dict.fromkeys(("w_box", "w_num", "w_any", "w_fmt", "w_lang", "w_long"), "1"),
        "bench_x": texts.packed(bench),
    }
    at = open_page("rewards", query)
    sound(at)
    assert not at.warning
    drawn = json.dumps(pictures(at))
    assert "<img" not in drawn
    assert not any("<img" in m.value for m in at.markdown)
    at.session_state["take-rewards"] = True
    at.run()
    printed(at.code[0].value)  # a text with quotes and backslashes is still one Python string
    at.button(key="bench-use").click().run()
    sound(at)


@pytest.mark.parametrize(
    "broken",
    ["AAAA", "!!", "x" * 9000, link.pack({"a": 1}), link.pack(["p", "g"]), link.pack(["p", "g", 1]),
     link.pack(["p", "g", *["x"] * 9]), link.pack(["p", "g", "x" * 5000]), link.pack("text")],
)  # fmt: skip
def test_broken_completions_in_a_link_say_so_and_show_the_case(open_page, broken):
    at = open_page("rewards", {"bench_x": broken})
    sound(at)
    assert len(at.warning) == 1
    assert shown_texts(at) == list(bench_cases()["sum"].texts)


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_opens(open_page, script):
    at = open_page("rewards", {**link_of("rewards", "language"), "script": script})
    sound(at)


@pytest.mark.parametrize(
    "extreme",
    [
        {"w_tag": "off"},
        {"w_tag": "-100", "w_fmt": "100", "w_long": "100", "long_max": "2", "long_cache": "32768"},
        {"w_long": "1", "long_max": "32768", "long_cache": "0"},
        {"w_long": "1", "long_max": "2", "long_cache": "2", "rew_view": "lengths"},
        {"bench": "open", "w_tag": "1", "w_lang": "2", "script": "thai", "no_answer": "unscored"},
    ],
)
def test_extreme_settings_open(open_page, extreme):
    sound(open_page("rewards", extreme))


def test_no_verifier_is_a_message(open_page):
    at = open_page("rewards", {"w_tag": "off"})
    sound(at)
    assert "No verifier is on" in at.info[0].value
    assert not at.metric


def test_texts_join_again_whatever_they_are():
    for text in (
        "",
        " ",
        "a b  c\n",
        "所以 x = 4",
        HOSTILE,
        "\u202e\x00\t",
        "<think>x</think>",
        "\\frac{1}{2}",
        "🙂 ok",
    ):
        assert "".join(texts.split(text)) == text
    assert texts.split("<think>17 + 28</think>") == ("<think>", "17", " +", " 28", "</think>")
    assert len(texts.split("所以不是")) == 4


def test_dapos_own_numbers(open_page):
    at = open_page("rewards", link_of("rewards", "curve"))
    at.session_state["check-overlong"] = True
    at.session_state["take-rewards"] = True
    at.run()
    at.number_input(key="answer-overlong").set_value(-0.3945).run()
    assert at.success
    assert missing([metrics(at)["penalty"]], printed(at.code[0].value)) == []


def test_the_words_fit():
    check_words("rewards")


def test_completions_of_nearly_one_length_share_a_name():
    x = np.linspace(0.0, 100.0, 5)
    points = (np.array([12.0, 10.0, 60.0, 11.0]), np.array([0.0, 0.0, -1.0, 0.0]))
    figure = figures.overlong(LIGHT, x, np.zeros(5), points=points, max_length=60, cache=20)
    names = figure["data"][-1]
    assert dict(zip(names["text"], names["x"], strict=True)) == {"1, 2, 4": 11.0, "3": 60.0}


def test_a_group_without_a_score_has_no_std(open_page):
    shown = metrics(open_page("rewards", link_of("rewards", "undecided")))
    assert (shown["mean"], shown["std"]) == (MISSING, MISSING)
