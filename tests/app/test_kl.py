"""The KL page: every preset, picture and estimator; the articles' cases; extremes, snippets, words."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from app import presets, snippets_kl
from app.explain import kl as explain
from app.figures.gradients import corner
from app.lens import look
from app.link import value_of
from app.params import PARAMS
from app.teaching import teaching_groups
from app.words import t
from grpo_core import kl_optimal_policy
from grpo_core.kl_gradients import WEIGHTINGS
from tests.app.driving import ROOT, link_of, metrics, missing, number, pictures, printed, sound, typed_wrong

NAMES = tuple(presets.names("kl"))
VIEWS = PARAMS["kl_view"].choices
CASES = {case["id"]: case for case in json.loads((ROOT / "tests" / "cases" / "seed_examples.json").read_text())}
CHECKS = {
    "curve": "kl", "distribution": "distribution", "why": "kl-why", "trap": "kl-trap", "offpolicy": "kl-off",
    "refresh": "kl-refresh",
}  # fmt: skip
THREE = {"cur": (0.5, 0.3, 0.2), "ref": (0.2, 0.3, 0.5)}


def lens_of(group="one-of-four", **chosen):
    return look(teaching_groups()[group], {name: value_of(chosen, name) for name in PARAMS})


def lens_of_preset(name):
    data = presets.presets("kl")[name]
    return lens_of(data.get("group", "one-of-four"), **data["set"])


# --- the articles' cases ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "key"), [("trap", "k3"), ("trap-k2", "k2"), ("trap-k1", "k1")])
def test_the_gradient_trap(open_page, name, key):
    case, one = CASES["kl-gradient-trap"], explain.trap(lens_of_preset(name))
    assert list(one.both.current) == [float(x) for x in case["inputs"]["current"]]
    expected = case["expected"]
    np.testing.assert_allclose(one.forward, expected["grad_kl_current_reference"], rtol=1e-12)
    np.testing.assert_allclose(one.reverse, expected["grad_kl_reference_current"], atol=1e-15)
    np.testing.assert_allclose(one.mean, expected[f"expected_grad_{key}_samples_frozen"], atol=1e-15)
    at = open_page("kl", link_of("kl", name))
    sound(at)
    shown = metrics(at)
    cosine = one.forward @ one.reverse / math.sqrt((one.forward @ one.forward) * (one.reverse @ one.reverse))
    between = t("readout.degrees", value=f"{math.degrees(math.acos(cosine)):.1f}")
    assert shown["kl_angle"] == between
    assert shown["kl_own_angle"] == {"k1": "–", "k2": t("readout.degrees", value="0.0"), "k3": between}[key]
    assert "+0.321" in pictures(at)[0]["layout"]["xaxis"]["ticktext"][0]


def test_samples_of_an_old_policy():
    case, one = CASES["kl-off-policy"], explain.off_policy(lens_of_preset("old-none"))
    assert list(one.old) == [float(x) for x in case["inputs"]["behaviour"]]
    expected = case["expected"]
    assert float(one.found["none"].value) == pytest.approx(expected["unweighted_mean_k3"], rel=1e-12)
    assert float(one.found["full"].value) == pytest.approx(expected["importance_weighted_k3"], rel=1e-12)
    assert one.both.exact == pytest.approx(expected["exact_kl"], rel=1e-12)
    assert one.angle("full") < 1e-5
    assert min(one.angle(name) for name in ("none", "detached", "clipped")) > 5
    assert float(one.found["detached"].value) == pytest.approx(one.both.exact, rel=1e-12)
    assert float(one.found["clipped"].value) != pytest.approx(one.both.exact, rel=0.01)


@pytest.mark.parametrize("name", ["old-none", "old-full", "old-detached", "old-capped", "old-fresh"])
def test_what_a_weight_does_is_read_off(open_page, name):
    at, one = open_page("kl", link_of("kl", name)), explain.off_policy(lens_of_preset(name))
    sound(at)
    shown = metrics(at)
    assert number(shown["exact"]) == pytest.approx(one.both.exact, abs=6e-5)
    assert number(shown["kl_found"]) == pytest.approx(float(one.own.value), abs=6e-5)
    right = one.chosen in ("full", "detached")
    assert (shown["exact"] == shown["kl_found"]) == right
    assert (number(shown["kl_own_angle"]) == 0) == (one.chosen == "full")


def test_three_sums_make_k3():
    own = explain.sums(explain.compared(lens_of_preset("why-five")))
    expected = CASES["kl-five"]["expected"]
    assert own.total == pytest.approx(1.0, rel=1e-12)
    assert float(own.k1.mean) == pytest.approx(float(own.k3.mean), rel=1e-12)
    np.testing.assert_allclose(own.k3.estimates, expected["k3"], atol=1e-15)
    assert own.k3.terms.min() >= 0 > own.k1.terms.min()
    missing_mass = explain.sums(explain.compared(lens_of_preset("why-unseen")))
    assert missing_mass.total == pytest.approx(0.7)


def test_the_spread_of_a_token_is_read_off(open_page):
    shown = metrics(open_page("kl", link_of("kl", "five")))
    p, k1 = np.array([0.4, 0.3, 0.15, 0.1, 0.05]), np.array(CASES["kl-five"]["expected"]["k1"])
    k3 = np.array(CASES["kl-five"]["expected"]["k3"])
    for name, k in (("std_k1", k1), ("std_k3", k3)):
        assert number(shown[name]) == pytest.approx(math.sqrt(p @ k**2 - (p @ k) ** 2), abs=6e-5)


def test_rounding_near_zero_is_shown_in_numbers(open_page):
    at = open_page("kl", link_of("kl", "tiny"))
    sound(at)
    assert metrics(at)["k3"] == "5.0e−17"
    formula = at.latex[0].value
    assert r"5.000\times 10^{-17}" in formula  # expm1
    assert r"-6.077\times 10^{-17}" in formula  # written out in 64 bits: of the wrong sign
    assert r"-1.000\times 10^{-8}" in formula  # in 32 bits
    assert "−6.1e−17" in at.info[0].value


def test_without_beta_there_is_no_reference(open_page):
    at = open_page("kl", link_of("kl", "off"))
    sound(at)
    assert number(metrics(at)["kl_in_loss"]) == 0
    assert at.info[0].value.startswith("β is 0")
    assert number(metrics(open_page("kl", {**link_of("kl", "off"), "beta": "0.5"}))["kl_in_loss"]) > 0


# --- the simplex ------------------------------------------------------------------------------------------------------


def test_arrows_show_where_a_small_step_leads_in_one_scale():
    for chosen in (THREE, {"cur": (0.85, 0.1, 0.05), "ref": (0.05, 0.15, 0.8)}, {"cur": (0.01, 0.01, 1.0)}):
        one = explain.trap(lens_of(**{**THREE, **chosen}))
        arrows = explain.arrows(one)
        moved = {}
        for name in ("forward", "reverse", "mean"):
            start, end = np.array(arrows[name].start), np.array(arrows[name].end)
            assert np.all(end >= -1e-12)
            assert end.sum() == pytest.approx(1.0)
            logits = np.log(start) - 1e-6 * getattr(one, name)
            step = np.exp(logits) / np.exp(logits).sum() - start
            moved[name] = (end - start, step)
        scale = moved["reverse"][0] @ moved["reverse"][0] / (moved["reverse"][0] @ moved["reverse"][1])
        for gone, step in moved.values():
            np.testing.assert_allclose(gone, scale * step, atol=2e-5)
        longest = max(math.dist(corner(a.start), corner(a.end)) for a in arrows.values())
        assert longest <= explain.ARROW + 1e-9


def test_both_ways_lead_to_the_reference_and_differ():
    one = explain.trap(lens_of(**THREE))
    ways = explain.descents(one)
    for way in ways.values():
        np.testing.assert_allclose(way[-1], one.both.reference, atol=0.01)
    assert np.abs(ways["forward"][5] - ways["reverse"][5]).max() > 0.01


def test_equal_policies_have_no_arrow(open_page):
    at = open_page("kl", {"kl_view": "trap", "cur": "0.2,0.3,0.5", "ref": "0.2,0.3,0.5"})
    sound(at)
    assert metrics(at)["kl_angle"] == "–"
    assert not any(mark.get("showarrow") for mark in pictures(at)[0]["layout"]["annotations"])


def test_two_events_can_be_made_three(open_page):
    at = open_page("kl", {"kl_view": "trap"})
    sound(at)
    assert "xaxis2" not in pictures(at)[0]["layout"]
    at.button(key="kl-to-three").click().run()
    sound(at)
    assert "xaxis2" in pictures(at)[0]["layout"]
    assert len(at.session_state["grpo_lab"].view.chosen["cur"]) == 3


# --- refresh ----------------------------------------------------------------------------------------------------------


def test_four_converged_rounds_are_one_run_with_a_quarter_of_beta():
    one = explain.refresh(lens_of_preset("refresh-rounds"))
    assert one.refreshes == [50, 100, 150]
    assert one.smaller == pytest.approx(one.beta / 4)
    best = kl_optimal_policy(one.start, one.rewards, beta=one.smaller)
    np.testing.assert_allclose(one.paths.policy[1, -1], best, atol=0.01)
    assert one.limit(one.smaller) == pytest.approx((float(best @ one.rewards), 1.8285), abs=1e-3)
    assert one.paths.penalty[1].max() < 0.5 * one.paths.from_start[1, -1]


def test_a_refresh_every_step_has_no_penalty(open_page):
    shown = metrics(open_page("kl", link_of("kl", "refresh-always")))
    assert number(shown["kl_end_refreshed"]) > number(shown["kl_end_smaller"]) > number(shown["kl_end_held"])


def test_a_refresh_after_the_last_step_is_none():
    assert explain.refresh(lens_of(kl_n=60, kl_steps=120)).refreshes == [60]
    assert explain.refresh(lens_of(kl_n=120, kl_steps=120)).refreshes == []


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", NAMES)
def test_every_preset_opens_from_its_link_and_is_marked(open_page, name, lang):
    at = open_page("kl", {**link_of("kl", name), "lang": lang})
    sound(at)
    assert not at.warning
    assert not at.error
    assert at.info[0].value
    assert at.latex[0].value
    view = presets.presets("kl")[name]["set"]["kl_view"]
    assert at.session_state[f"preset-kl-{view}"] == name


def test_every_picture_has_its_telling_cases():
    by_view = {}
    for data in presets.presets("kl").values():
        by_view.setdefault(data["set"]["kl_view"], []).append(frozenset(data["set"]))
    assert set(by_view) == set(VIEWS)
    assert all(len(keys) >= 3 and len(set(keys)) == 1 for keys in by_view.values())


@pytest.mark.parametrize("weight", WEIGHTINGS)
@pytest.mark.parametrize("kl", PARAMS["kl"].choices)
def test_every_estimator_and_weight(open_page, kl, weight):
    for view in ("trap", "offpolicy"):
        at = open_page("kl", {"kl_view": view, "kl": kl, "kl_w": weight, "cur": "0.5,0.3,0.2", "ref": "0.2,0.3,0.5"})
        sound(at)
        assert not at.warning


EXTREMES = (
    {"cur": "0,1", "ref": "1,0"},
    {"cur": "0,0", "ref": "0,0", "kl_old": "0,0"},
    {"cur": "1,0.01", "ref": "0.01,1", "kl_old": "0.01,1", "kl_cap": "0.001", "kl_w": "clipped"},
    {"cur": "0.01,1,0.01", "ref": "1,0.01,0.01", "kl_old": "1,1,1", "kl_cap": "1000", "kl_w": "clipped"},
    {"cur": "1,1,1,1,1,1,1,1", "ref": "1,2,3,4,5,6,7,8", "kl_old": "1,0"},
    {"cur": "0.125,0.5,0.5,0.5,0.5,0.5,0.5,1", "ref": "1,0.9,0.8,0.7,0.6,0.5,0.4,0.3", "kl_w": "full", "kl": "k2"},
    {"kl_n": "1", "kl_steps": "300", "kl_lr": "10", "kl_b": "100", "kl_bs": "0.001"},
    {"kl_n": "200", "kl_steps": "10", "kl_lr": "0.001"},
    {"kl_p0": "0.000001,1", "kl_rw": "100,-100", "kl_lr": "10", "kl_b": "0.001"},
    {"kl_p0": "1,1,1,1,1,1,1,1", "kl_rw": "0,0"},
    {"kl_p0": "1,1", "kl_rw": "0,1,2,3"},
    {"d": "1000"}, {"d": "-1000"}, {"d": "0.0005"}, {"d": "-0.003"}, {"d": "0"},
)  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
def test_every_extreme_link_opens_in_every_picture(open_page, view):
    for extreme in EXTREMES:
        at = open_page("kl", {**extreme, "kl_view": view, "lang": "zh"})
        sound(at)
        ranges = [w.value for w in at.warning]
        assert ranges == [] or "ref" in extreme  # weights above 1 are out of range: a note, and the default


def test_an_event_of_probability_zero_is_named_and_the_controls_stay(open_page):
    for view in ("trap", "offpolicy"):
        at = open_page("kl", {"kl_view": view, "cur": "0,1", "ref": "0.5,0.5"})
        sound(at)
        assert not pictures(at)
        assert "above 0" in at.info[0].value
        assert at.get("bidi_component")


def test_the_old_policy_has_as_many_events_as_the_others(open_page):
    query = {"kl_view": "offpolicy", "cur": "0.4,0.3,0.2,0.1", "ref": "0.1,0.2,0.3,0.4", "kl_old": "0.6,0.2"}
    one = explain.off_policy(lens_of(cur=(0.4, 0.3, 0.2, 0.1), ref=(0.1, 0.2, 0.3, 0.4), kl_old=(0.6, 0.2)))
    np.testing.assert_allclose(one.old, [0.5, 1 / 6, 1 / 6, 1 / 6])
    sound(open_page("kl", query))


@pytest.mark.parametrize("view", VIEWS)
def test_checks_are_answered(open_page, view):
    said = typed_wrong(open_page("kl", {"kl_view": view}), "kl", CHECKS[view])
    assert "{" not in said


def test_the_way_to_the_kl_in_the_reward_keeps_the_group(open_page):
    at = open_page("kl", {"g": "off-policy"})
    links = [element.proto for element in at.get("page_link")]
    assert [link.page for link in links] == ["ppo"]
    assert "ppo_view=where" in links[0].query_string
    assert "g=off-policy" in links[0].query_string


# --- snippets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("trap", "old", "why", "refresh", "tiny"))])
def test_a_snippet_prints_every_number_shown(open_page, name):
    lens = lens_of_preset(name)
    view = lens.values["kl_view"]
    code = {
        "curve": lambda: snippets_kl.rounding(lens.values["d"]),
        "why": lambda: snippets_kl.why(explain.compared(lens)),
        "trap": lambda: snippets_kl.trap(explain.trap(lens)),
        "offpolicy": lambda: snippets_kl.off_policy(explain.off_policy(lens)),
        "refresh": lambda: snippets_kl.refresh(explain.refresh(lens)),
    }[view]()
    numbers = printed(code)
    shown = metrics(open_page("kl", link_of("kl", name)))
    wanted = {
        "curve": ["k3"], "why": ["mean_ratio", "mean_log", "mean_k3"], "trap": [], "offpolicy": ["exact", "kl_found"],
        "refresh": ["kl_end_held", "kl_end_refreshed", "kl_end_smaller"],
    }[view]  # fmt: skip
    assert missing([shown[key] for key in wanted], numbers) == []
    if view == "trap":
        one = explain.trap(lens)
        everything = np.concatenate([one.forward, one.reverse, one.mean])
        np.testing.assert_allclose(numbers[: everything.size], everything, atol=1e-6)
