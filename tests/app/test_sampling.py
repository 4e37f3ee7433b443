"""The Sampling page under AppTest: every preset, extreme links, bad input, snippets run, checks answered."""

from __future__ import annotations

import pytest

from app import presets
from app.numbers import MISSING
from app.params import PARAMS
from app.words import prose, t
from tests.app.driving import check_words, link_of, metrics, missing, pictures, printed, sound, typed_wrong

NAMES = tuple(presets.names("sampling"))
EXPECTED = {
    "dynamic": ["completions"],
    "budget": ["groups", "mixed_groups", "signal"],
    "temperature": ["token_ratio", "sequence_ratio"],
    "pass": ["pass_at_k", "bootstrap"],
}
EXTREMES = (
    {"rates": "0,0", "mix_g": "1", "batch_n": "1"},
    {"rates": "0,1,0,1,0,1,0,1", "mix_g": "64", "batch_n": "256", "refill": "retry"},
    {"rates": "0.5,0.5", "mix_g": "64", "batch_n": "256", "refill": "keep"},
    {"rates": "0.001,0.001", "mix_g": "2", "batch_n": "256"},
    {"rates": "0.5,0", "budget": "8", "mix_g": "64"},
    {"rates": "1,1", "budget": "8192", "mix_g": "1"},
    {"probs": "0,0", "temp": "0.01", "t_temp": "100", "seq_n": "10000"},
    {"probs": "1,0,0,0", "temp": "100", "t_temp": "0.01", "top_k": "8", "top_p": "0.001", "seq_n": "1"},
    {"probs": "0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5", "top_k": "1", "top_p": "1"},
    {"probs": "0.9,0.1", "temp": "0.01", "t_temp": "0.01", "seq_n": "10000"},
    {"pk_n": "1", "pk_c": "256", "pk_k": "256"},
    {"pk_n": "256", "pk_c": "0", "pk_k": "256"},
    {"pk_n": "256", "pk_c": "1", "pk_k": "128"},
)


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_opens_from_its_link_and_is_marked(open_page, name):
    at = open_page("sampling", link_of("sampling", name))
    sound(at)
    assert not at.warning
    assert not at.error
    assert pictures(at)
    assert at.info[0].value
    assert at.latex[0].value
    assert at.pills[0].value == name


def test_presets_can_be_clicked_one_after_the_other(open_page):
    at = open_page("sampling")
    for view in PARAMS["samp_view"].choices:
        at.segmented_control(key="choice-samp_view").set_value(view).run()
        sound(at)
        for name in (n for n in NAMES if presets.presets("sampling")[n]["set"]["samp_view"] == view):
            at.pills(key=f"preset-sampling-{view}").set_value(name).run()
            sound(at)
            assert at.pills(key=f"preset-sampling-{view}").value == name


@pytest.mark.parametrize("name", [n for n in NAMES if n != "solved"])
def test_every_snippet_prints_what_the_page_shows_and_every_check_has_an_answer(open_page, name):
    at = open_page("sampling", link_of("sampling", name))
    view = presets.presets("sampling")[name]["set"]["samp_view"]
    at.session_state["take-sampling"] = True
    at.run()
    shown = metrics(at)
    assert missing([shown[w] for w in EXPECTED[view]], printed(at.code[0].value)) == []
    assert typed_wrong(at, "sampling", view)


def test_a_batch_that_never_fills_says_so(open_page):
    at = open_page("sampling", link_of("sampling", "solved"))
    assert metrics(at)["draws"] == "∞"
    assert len(pictures(at)) == 1
    at.session_state["take-sampling"] = True
    at.run()
    assert "rule='resample'" in at.code[0].value
    printed(at.code[0].value)


def test_what_only_rescales_and_what_reweights(open_page):
    assert metrics(open_page("sampling", link_of("sampling", "dapo")))["direction"] == t("readout.same_direction")
    assert metrics(open_page("sampling", link_of("sampling", "retry")))["direction"] == t("readout.new_direction")


def test_top_p_left_out_of_the_ratio(open_page):
    """The bug report on top-p: 0.8 at every token, 2e-10 over a hundred."""
    shown = metrics(open_page("sampling", link_of("sampling", "top-p")))
    assert (shown["token_ratio"], shown["sequence_ratio"]) == ("0.800", "2.0e−10")
    shown = metrics(open_page("sampling", link_of("sampling", "matched")))
    assert (shown["token_ratio"], shown["sequence_ratio"]) == ("1.000", "1.000")


def test_one_right_of_four(open_page):
    shown = metrics(open_page("sampling", link_of("sampling", "pass-small")))
    assert (shown["pass_at_k"], shown["bootstrap"]) == ("0.500", "0.438")


@pytest.mark.parametrize("extreme", EXTREMES)
def test_extreme_links_open_in_every_picture(open_page, extreme):
    for view in PARAMS["samp_view"].choices:
        at = open_page("sampling", {"samp_view": view, **extreme})
        sound(at)
        assert not at.warning, [w.value for w in at.warning]


def test_a_bad_link_says_so_and_shows_the_default(open_page):
    at = open_page("sampling", {"samp_view": "x", "rates": "0.5", "top_p": "2", "temp": "0", "probs": "a,b"})
    sound(at)
    assert len(at.warning) == 5
    assert metrics(at)["draws"].startswith("126")


def test_a_check_is_answered_by_the_core(open_page):
    at = open_page("sampling", link_of("sampling", "top-p"))
    at.session_state["check-temperature"] = True
    at.run()
    at.number_input(key="answer-temperature").set_value(0.107).run()
    assert at.success


def test_the_words_fit():
    check_words("sampling")


def test_a_cut_and_another_temperature_are_named_together(open_page):
    at = open_page("sampling", {"samp_view": "temperature", "temp": "0.5", "top_k": "2"})
    shown = metrics(at)
    numbers = {"never": "2", "temp": "0.5", "trained": "1", "low": "0.68", "high": "1.13", "n": "100"}
    values = {"kept": shown["kept_mass"], "sequence": shown["sequence_ratio"]}
    assert at.info[0].value == prose("sampling", "temperature-both", **numbers, **values)


def test_where_nothing_trains_there_is_no_direction(open_page):
    assert metrics(open_page("sampling", link_of("sampling", "solved")))["direction"] == MISSING
    assert metrics(open_page("sampling", link_of("sampling", "dapo")))["direction"] != MISSING
