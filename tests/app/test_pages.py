"""Every page under AppTest: default, presets, extreme links, bad input. No exception element, ever."""

from __future__ import annotations

import json

import pytest

from app import editing, link, presets, state
from app.params import PARAMS, SHOWN_RECIPES
from app.teaching import teaching_groups
from app.words import CONTENT, t

PAGES = ("home", "advantages", "clip", "kl", "reduction")
VIEWS = {
    "home": ({},),
    "advantages": tuple({"adv_view": v} for v in PARAMS["adv_view"].choices),
    "clip": tuple({"clip_view": v} for v in PARAMS["clip_view"].choices),
    "kl": tuple({"kl_view": v} for v in PARAMS["kl_view"].choices),
    "reduction": tuple({"red_view": v} for v in PARAMS["red_view"].choices),
}
BY_VIEW = ("clip", "advantages", "reduction", "kl")
GROUPS = tuple(json.loads((CONTENT / "presets.json").read_text())["home"])
EXTREMES = (
    {"eps_low": "0", "eps_high": "0"},
    {"eps_low": "1", "eps_high": "10", "r": "1000"},
    {"eps_low": "1", "delta": "1", "sign": "down", "r": "0"},
    {"d": "1000", "kl": "k3"},
    {"d": "-1000", "kl": "k2"},
    {"cur": "0,0", "ref": "1,0"},
    {"cur": "1,0", "ref": "0,1", "kl": "k1"},
    {"cur": "0.5,0.5,0.5", "ref": "0,0"},
    {"drift": "2", "drift_n": "100000"},
    {"drift": "0.5", "drift_n": "1"},
    {"p": "0", "mix_g": "1"},
    {"p": "1", "mix_g": "64"},
    {"eps": "1", "scale": "batch", "ddof": "1"},
    {"beta": "1", "level": "trajectory", "reduce": "token_sum", "constant": "1"},
    {"parts": "16", "constant": "4096", "reduce": "constant"},
)


def sound(at) -> None:
    """No exception reached the page, and the page drew something."""
    assert not at.exception, [e.value for e in at.exception]
    assert at.title[0].value


@pytest.mark.parametrize(("page", "view"), [(p, v) for p in PAGES for v in VIEWS[p]])
def test_every_picture_opens(open_page, page, view):
    at = open_page(page, view)
    sound(at)
    assert not at.warning
    assert not at.error
    assert at.info[0].value
    assert at.latex[0].value


@pytest.mark.parametrize("page", PAGES)
def test_every_extreme_link_opens_in_every_picture(open_page, page):
    for extreme in EXTREMES:
        for view in VIEWS[page]:
            at = open_page(page, {**extreme, **view})
            sound(at)
            assert not at.warning, (extreme, [w.value for w in at.warning])


@pytest.mark.parametrize("page", PAGES)
def test_every_group_opens_in_every_picture(open_page, page):
    for group in GROUPS:
        for view in VIEWS[page]:
            sound(open_page(page, {"g": group, **view}))


@pytest.mark.parametrize("recipe", SHOWN_RECIPES)
def test_every_recipe_opens_on_every_page(open_page, recipe):
    for page in PAGES:
        sound(open_page(page, {"recipe": recipe, "g": "cut-and-empty"}))


@pytest.mark.parametrize("page", PAGES)
def test_every_preset_is_shown_as_chosen(open_page, page):
    at = open_page(page)
    for view in VIEWS[page] if page in BY_VIEW else ({},):  # with many pictures only the chosen one's are offered
        key = "-".join([f"preset-{page}", *view.values()])
        for setting, choice in view.items():
            at.segmented_control(key=f"choice-{setting}").set_value(choice).run()
        for name, preset in presets.presets(page).items():
            if not view.items() <= preset["set"].items():
                continue
            at.pills(key=key).set_value(name).run()
            sound(at)
            assert at.pills(key=key).value == name


def test_an_edit_of_the_group_is_on_every_page(open_page):
    at = open_page("advantages")
    at.text_input(key="rewards-line").set_value("0, 1, 1, unscored, 0.5").run()
    sound(at)
    assert {m.label: m.value for m in at.metric}[t("readout.scored")] == "4 of 5"
    for page in PAGES[2:]:
        at.switch_page(f"../pages/{page}.py").run()
        sound(at)
        assert at.session_state["grpo_lab"].view.group.rewards == (0.0, 1.0, 1.0, None, 0.5)
        assert at.selectbox(key="choice-group").value == "edited"


@pytest.mark.parametrize("page", PAGES)
def test_a_log_ratio_of_a_thousand_nats_is_no_broken_picture(open_page, page):
    group = teaching_groups()["off-policy"]
    far = editing.with_token(group, 0, 0, "logp", -1000.0)
    for view in VIEWS[page]:
        at = open_page(page, {**link.to_query(link.View({}, "off-policy", far)), "beta": "0.04", **view})
        sound(at)
        for element in at.get("bidi_component"):
            if element.proto.json:
                json.loads(element.proto.json, parse_constant=pytest.fail)  # a browser reads no Infinity and no NaN


@pytest.mark.parametrize(
    "typed", ["1, x, 0", "1,,0", "", "nan", "1, inf", "1e999", "1, <b>0</b>", "$x$", ",".join("1" * 65)]
)
def test_a_bad_reward_keeps_the_last_good_group(open_page, typed):
    at = open_page("advantages")
    before = at.session_state["grpo_lab"].view.group
    at.text_input(key="rewards-line").set_value(typed).run()
    sound(at)
    assert len(at.error) == 1
    assert at.session_state["grpo_lab"].view.group == before
    at.text_input(key="rewards-line").set_value("1, 0").run()
    assert not at.error
    assert at.session_state["grpo_lab"].view.group.size == 2


def test_one_completion_and_no_score_are_shown_as_what_they_are(open_page):
    at = open_page("advantages")
    at.text_input(key="rewards-line").set_value("0.7").run()
    assert at.info[0].value.startswith("A group of one")
    at.text_input(key="rewards-line").set_value("unscored, none").run()
    sound(at)
    assert {m.label: m.value for m in at.metric}[t("readout.mean")] == "–"
    assert t("kind.unscored") in [m.value for m in at.metric]


def test_a_recipe_sets_the_choices_and_a_choice_can_differ_from_it(open_page):
    at = open_page("advantages")
    at.selectbox(key="choice-recipe").set_value("trl_grpo").run()
    assert at.session_state["grpo_lab"].view.chosen == {"recipe": "trl_grpo"}
    assert "+1.500" in at.latex[0].value
    at.segmented_control(key="choice-ddof").set_value(0).run()
    assert at.session_state["grpo_lab"].view.chosen == {"recipe": "trl_grpo", "ddof": 0}
    at.segmented_control(key="choice-ddof").set_value(1).run()
    assert at.session_state["grpo_lab"].view.chosen == {"recipe": "trl_grpo"}


def test_undo_and_reset(open_page):
    at = open_page("advantages")
    assert at.button(key="undo").disabled
    at.text_input(key="rewards-line").set_value("1, 1").run()
    at.pills(key="preset-advantages-bars").set_value("hair-gap").run()
    at.button(key="undo").click().run()
    assert at.session_state["grpo_lab"].view.group.rewards == (1.0, 1.0)
    at.button(key="reset").click().run()
    assert at.session_state["grpo_lab"].view == state.View()
    at.button(key="undo").click().run()
    assert at.session_state["grpo_lab"].view.group.rewards == (1.0, 1.0)


def test_a_bad_link_falls_back_with_a_note_and_nothing_in_it_is_markup(open_page):
    at = open_page(
        "clip", {"eps_low": "7", "level": "<b>x</b>", "g": "no-such", "gx": "AAAA", "evil": "1", "embed": "true"}
    )
    sound(at)
    assert len(at.warning) == 5
    assert not any("<b>" in w.value for w in at.warning)
    assert at.session_state["grpo_lab"].view == state.View()


def test_the_check_is_answered_by_the_core(open_page):
    at = open_page("kl")
    at.expander[0].open() if hasattr(at.expander[0], "open") else None
    assert t("check.title") in [e.label for e in at.expander]
