"""The Reduction page: every preset, extremes, micro-batches and ranks, masks and truncation, snippets."""

from __future__ import annotations

import json

import numpy as np
import pytest

from app import editing, formulas, presets, snippets
from app import lens as lenses
from app.explain import reduction as explain
from app.figures import reduction_masks as figures
from app.figures.base import LIGHT
from app.lens import look
from app.link import value_of
from app.params import PARAMS
from app.teaching import teaching_groups
from app.views.reduction import masks, parts
from app.words import sections, t
from grpo_core import Group
from tests.app.driving import ROOT, link_of, metrics, missing, number, pictures, printed, sound, typed_wrong

NAMES = tuple(presets.names("reduction"))
VIEWS = PARAMS["red_view"].choices
CASES = {case["id"]: case for case in json.loads((ROOT / "tests" / "cases" / "seed_examples.json").read_text())}
LANGUAGES = ({}, {"lang": "zh"})


def lens_of(group="one-of-four", **chosen):
    own = teaching_groups()[group] if isinstance(group, str) else group
    return look(own, {name: value_of(chosen, name) for name in PARAMS})


def preset_lens(name):
    preset = presets.presets("reduction")[name]
    return lens_of(preset["group"], **preset["set"])


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", LANGUAGES, ids=["en", "zh"])
@pytest.mark.parametrize("name", NAMES)
def test_every_preset_opens_from_its_link_and_is_marked(open_page, name, language):
    at = open_page("reduction", {**link_of("reduction", name), **language})
    sound(at)
    assert not at.warning
    assert not at.error
    assert at.info[0].value
    assert at.latex[0].value
    view = presets.presets("reduction")[name]["set"]["red_view"]
    assert at.session_state[f"preset-reduction-{view}"] == name


EXTREMES = (
    {"ranks": "8", "parts": "16", "span": "rank", "limit": "1", "cut": "drop", "reduce": "token_mean"},
    {"ranks": "1", "parts": "1", "span": "all", "limit": "200", "reduce": "token_sum", "constant": "1"},
    {"ranks": "3", "parts": "2", "span": "part", "limit": "3", "reduce": "constant", "constant": "4096"},
    {"recipe": "trl_dapo", "limit": "2", "cut": "drop", "ranks": "2"},
    {"recipe": "trl_luspo", "limit": "5", "cut": "drop"},
)


@pytest.mark.parametrize("language", LANGUAGES, ids=["en", "zh"])
@pytest.mark.parametrize("view", VIEWS)
def test_every_extreme_link_opens_in_every_picture(open_page, view, language):
    for extreme in EXTREMES:
        for group in ("cut-and-empty", "lengths-10-100", "think-tags"):
            at = open_page("reduction", {**extreme, **language, "g": group, "red_view": view})
            sound(at)
            assert not at.warning, [w.value for w in at.warning]


@pytest.mark.parametrize("key", ["tokens", "rules", "parts", "masks"])
def test_a_wrong_answer_is_told_with_the_way_to_the_right_one(open_page, key):
    own = "reduction" if key in ("tokens", "rules") else key
    assert typed_wrong(open_page("reduction", {"red_view": key}), "reduction", own)


def test_the_ways_to_other_pages_are_there_and_a_locked_view_has_none(open_page):
    at = open_page("reduction", {"red_view": "masks"})
    links = [element.proto.label for element in at.get("page_link")]
    assert t("see.rewards.curve") in links
    assert not open_page("reduction", {"red_view": "masks", "lock": "1"}).get("page_link")


# --- micro-batches and ranks ------------------------------------------------------------------------------------------


def test_the_articles_example_of_micro_batches():
    case = CASES["reduce-microbatch"]["expected"]
    split = parts.divided(preset_lens("parts"))
    assert split.tokens == (2, 8)
    assert split.local == pytest.approx((1.0, -1.0))
    assert split.mean_of_means == pytest.approx(case["mean_of_local_token_means"], abs=1e-12)
    assert split.pooled == pytest.approx(case["global_token_mean"])
    assert split.weights["part"] == pytest.approx((1 / 4, 1 / 16))
    assert split.weights["all"] == pytest.approx((1 / 10, 1 / 10))


def test_four_ranks_of_two_by_hand():
    split = parts.divided(preset_lens("ranks"))
    assert (split.ranks, split.each) == (4, 2)
    assert split.tokens == (11, 11, 2, 2, 4, 4, 2, 4)
    assert split.weights["part"] == pytest.approx([1 / (8 * n) for n in split.tokens])
    assert split.weights["rank"] == pytest.approx([1 / (4 * n) for n in (22, 22, 4, 4, 8, 8, 6, 6)])
    assert split.weights["all"] == pytest.approx([1 / 40] * 8)
    assert split.mean_of_means == pytest.approx(np.mean(split.local))
    sums = np.array(split.local) * split.tokens
    assert split.losses["rank"] == pytest.approx(np.mean(sums.reshape(4, 2).sum(axis=1) / [22, 4, 8, 6]))
    assert split.pooled == pytest.approx(sums.sum() / 40)


@pytest.mark.parametrize("group", list(teaching_groups()))
def test_whoever_counts_over_everything_does_not_see_the_cuts(group):
    lens = lens_of(group)
    found = {lenses.split(lens, n, ranks).pooled for n in (1, 2, 5) for ranks in (1, 2, 3)}
    assert max(found) - min(found) < 1e-12
    one = lenses.split(lens, 1, 1)
    assert one.mean_of_means == pytest.approx(one.pooled)
    for ranks in (1, 2):  # one micro-batch a rank: both say the same
        split = lenses.split(lens, 1, ranks)
        assert split.losses["part"] == pytest.approx(split.losses["rank"])


def test_no_micro_batch_is_empty_and_none_is_lost():
    lens = lens_of("one-of-eight")
    for ranks in range(1, 9):
        for n in range(1, 17):
            split = lenses.split(lens, n, ranks)
            assert [i for own in split.members for i in own] == list(range(8))
            assert all(split.members)
            assert len(split.members) == split.ranks * split.each


def test_dropped_completions_leave_the_token_counts():
    lens = lens_of(editing.cut_at(teaching_groups()["one-of-four"], 6), cut="drop")
    split = lenses.split(lens, 4)
    assert split.tokens == (0, 0, 2, 6)
    assert split.local[:2] == (0.0, 0.0)
    assert split.weights["part"] == pytest.approx((0, 0, 1 / 8, 1 / 24))


@pytest.mark.parametrize("name", [n for n in NAMES if presets.presets("reduction")[n]["set"]["red_view"] == "parts"])
def test_the_python_of_the_parts_prints_the_numbers_that_are_shown(open_page, name):
    lens = preset_lens(name)
    found = printed(snippets.parts(lens, parts.divided(lens)))
    shown = metrics(open_page("reduction", link_of("reduction", name)))
    assert missing([value for key, value in shown.items() if key != "layout"], found) == []


@pytest.mark.parametrize("span", lenses.SPANS)
def test_the_formula_of_the_parts_has_their_numbers(span):
    split = parts.divided(preset_lens("ranks"))
    text = " ".join(formulas.parts(split, span))
    assert f"{split.pooled:.3f}" in text
    assert f"{max(split.weights[span]):.4f}" in text


# --- masks and truncation ---------------------------------------------------------------------------------------------


def test_a_limit_cuts_what_is_longer_and_says_so():
    group = teaching_groups()["one-of-four"]
    cut = editing.cut_at(group, 6)
    assert [len(row) for row in cut.tokens] == [6, 6, 2, 6]
    assert cut.finish == ("length", "length", "eos", "eos")
    assert cut.rewards == group.rewards
    assert cut.logp[0] == group.logp[0][:6]
    assert editing.cut_at(group, 8) == group


def test_what_is_dropped_keeps_its_place_in_the_sequence_mean_and_leaves_the_token_mean():
    sequence, tokens = preset_lens("kept"), preset_lens("dropped")
    before = masks.padded(sequence).lens
    dropped = masks.padded(lens_of("one-of-four", **{**sequence.values, "cut": "drop"})).lens
    np.testing.assert_allclose(dropped.terms.weights[2:], before.terms.weights[2:])  # still 1 / (4 |o|)
    assert not np.any(dropped.terms.weights[:2])
    np.testing.assert_allclose(dropped.advantages, before.advantages)  # rewards still count
    shown = masks.padded(tokens)
    assert shown.lens.trained == (0, 0, 2, 6)
    assert float(shown.lens.terms.weights.max()) == pytest.approx(1 / 8)
    assert masks.notice(shown)[0] == "masks-dropped-tokens"


@pytest.mark.parametrize("mode", PARAMS["reduce"].choices)
def test_everything_truncated_and_dropped_is_zero_and_not_undefined(mode):
    own = masks.padded(lens_of("one-of-four", limit=1, cut="drop", reduce=mode))
    assert own.lens.trained == (0, 0, 0, 0)
    assert float(own.lens.terms.loss) == 0.0
    assert not np.any(own.lens.terms.weights)
    assert not np.any(own.lens.gradients.total)
    assert masks.notice(own)[0] == "masks-all"
    assert not any("nan" in line for line in masks.formula(own))


@pytest.mark.parametrize("mode", PARAMS["reduce"].choices)
def test_an_empty_completion_has_weight_zero_and_is_reported(mode):
    assert CASES["reduce-empty-response"]["inputs"]["lengths"][0] == 0
    group = Group(prompt="", tokens=((), ("a", "b", "c")), rewards=(0.0, 1.0), logp=((), (-0.5, -0.5, -0.5)))
    lens = lens_of(group, reduce=mode)
    assert np.all(np.isfinite(lens.terms.weights))
    assert not np.any(lens.terms.weights[0])
    own = masks.padded(lens)
    assert own.empty == [0]
    section, numbers = masks.notice(own)
    assert section == "masks-empty"
    assert numbers["empty"] == "1"
    assert any("no token" in line for line in masks.formula(own))


def test_every_cell_says_what_it_is():
    group = Group(
        prompt="p", tokens=(("a", "b"), ("c", "<eos>"), ()), rewards=(1.0, 0.0, 0.0),
        logp=((-1.0, -1.0), (-1.0, -1.0), ()), mask=((True, True), (False, True), ()),
        finish=("length", "eos", "unknown"),
    )  # fmt: skip
    rows = masks.rows(masks.padded(lens_of(group, cut="drop")))
    assert [[figures.state_of(row, k) for k in range(len(row.tokens))] for row in rows] == [
        ["dropped", "dropped"],
        ["masked", "eos"],
        [],
    ]
    grid = figures.padded(LIGHT, rows)["data"][0]
    own, prompt = figures.PROMPT, [0.0] * figures.PROMPT
    assert [row[:own] for row in grid["z"]] == [prompt] * 3
    assert grid["z"][0][own:] == [2.0, 2.0]
    assert grid["z"][1][own:] == [3.0, 4.0]
    assert grid["z"][2][own:] == [1.0, 1.0]  # padding only
    assert grid["text"][1][own:] == ["×", "EOS"]


def test_truncated_is_never_called_clipped(open_page):
    at = open_page("reduction", {"g": "cut-and-empty", "red_view": "masks"})
    shown = metrics(at)
    assert shown["truncated"] == "1 of 4"
    assert shown["clipped_tokens"].endswith("of 12")
    words = [text for name, text in sections("reduction").items() if name.startswith("masks")]
    assert words
    assert not any("clip" in text for text in words)
    assert sections("reduction")["truncated"] in [c.value for c in at.caption]


def test_the_picture_of_a_limit_does_not_change_the_group(open_page):
    at = open_page("reduction", {"red_view": "masks", "limit": "3"})
    assert at.session_state["grpo_lab"].view.group == teaching_groups()["one-of-four"]
    width = len(pictures(at)[0]["data"][0]["z"][0])
    assert width == 3 + figures.PROMPT


@pytest.mark.parametrize("name", [n for n in NAMES if presets.presets("reduction")[n]["set"]["red_view"] == "masks"])
def test_the_python_of_the_masks_prints_the_loss_that_is_shown(open_page, name):
    own = masks.padded(preset_lens(name))
    shown = {m.label: m.value for m in open_page("reduction", link_of("reduction", name)).metric}
    assert printed(snippets.loss(own.lens))[-1] == pytest.approx(number(shown[t("readout.loss")]), abs=6e-4)


def test_tables_hold_every_row():
    own = masks.padded(preset_lens("dropped"))
    rows = masks.table(own).rows
    assert len(rows) == sum(map(len, own.lens.group.tokens))
    assert {row[3] for row in rows} == {"dropped", "token", "eos"}
    assert sum(row[4] for row in rows) == pytest.approx(1)
    assert len(explain.parts_table(parts.divided(preset_lens("ranks"))).rows) == 8


# --- snippets of the other pictures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sequence", "token", "constant", "hundred", "empty", "rules"])
def test_the_python_of_the_weights_prints_the_loss(name):
    lens = preset_lens(name)
    assert printed(snippets.reduction(lens))[-1] == pytest.approx(float(lens.terms.loss), abs=1e-5)


def test_the_python_of_the_weights_leaves_dropped_completions_out():
    lens = lens_of("cut-and-empty", cut="drop", reduce="token_mean")
    assert printed(snippets.reduction(lens))[-1] == pytest.approx(float(lens.terms.loss), abs=1e-5)
