"""The From PPO page under AppTest: every preset, extreme links, bad input, snippets run, checks answered."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest

from app import presets
from app.figures.ppo import _beside_frame
from app.numbers import signed
from app.params import PARAMS
from app.views.ppo.rounds import SCENARIOS as ON_LIVE
from app.words import prose, t
from grpo_core.live.scenarios import SCENARIOS
from grpo_core.memory import METHODS
from tests.app.driving import check_words, link_of, metrics, missing, number, pictures, printed, sound, typed_wrong

NAMES = tuple(presets.names("ppo"))
EXPECTED = {  # what the snippet of each picture must print, and the key of its check
    "gae": (["gae", "tail", "value_loss"], "critic"),
    "vine": (["continuations", "extra_tokens", "vine_ratio", "vine_token_ratio"], "vine"),
    "memory": (["memory_ppo", "memory_grpo", "memory_free"], "memory"),
    "bound": (["true_gain", "surrogate_gain", "surrogate_error", "error_bound"], "bound"),
    "step": (["natural_gain", "model_kl", "exact_kl"], "step"),
    "pair": (["margin", "dpo_loss", "dpo_weight"], "dpo"),
    "optimum": (["expected_reward", "regularised", "beta_log_z"], "optimum"),
    "tokens": ([], "where"),
    "chain": (["sequence_kl", "sum_of_terms"], "chain"),
    "rounds": ([], "rounds"),
}
EXTREMES = (
    {"tr": "0,0", "tv": "0,0", "gamma": "0", "lam": "0"},
    {"tr": "100,-100,0,0,0,0,0,1", "tv": "-100,100", "gamma": "1", "lam": "1", "boot": "-100", "at_t": "8"},
    {"vine": "0,0", "vine_k": "1", "vine_len": "8", "vine_r": "-100", "critic_view": "vine"},
    {"vine": "1,0,1,0,1,0,1,0", "vine_k": "64", "vine_len": "16384", "critic_view": "vine"},
    {"mem_p": "0.1", "mem_v": "1000", "mem_r": "0.1", "mem_prec": "fp32"},
    {"alpha": "0", "horizon": "1", "a_max": "0.05"},
    {"alpha": "0.5", "horizon": "100", "a_max": "1000"},
    {"trust_view": "step", "nat_p": "0,0,1", "nat_r": "-100,100,0", "nat_d": "1"},
    {"trust_view": "step", "nat_p": "1,1", "nat_r": "0,0"},
    {"trust_view": "step", "nat_p": "1,0,0,0,0,0,0,0", "nat_r": "1,0", "nat_d": "0.0001"},
    {"dpo_w": "-10000", "dpo_wr": "0", "dpo_l": "0", "dpo_lr": "-10000", "dpo_beta": "1000"},
    {"dpo_w": "0", "dpo_wr": "-10000", "dpo_l": "-10000", "dpo_lr": "0", "dpo_beta": "0.000001"},
    {"dpo_view": "optimum", "opt_ref": "0,1", "opt_r": "100,-100", "opt_beta": "0.001"},
    {"dpo_view": "optimum", "opt_ref": "0,0", "opt_r": "0,0", "opt_beta": "1000"},
    {"dpo_view": "optimum", "opt_ref": "1,1,1,1,1,1,1,1", "opt_r": "1,0"},
    {"where_view": "tokens", "beta": "1", "comp": "64", "kl": "k1", "g": "cut-and-empty"},
    {"where_view": "tokens", "beta": "0.04", "comp": "2", "g": "one-unscored"},
    {"where_view": "chain", "ch_p": "0,1", "ch_q": "1,0"},
    {"where_view": "chain", "ch_p": "1,1,1,1,1,1,1,1", "ch_q": "0,0"},
    {"it_i": "4", "it_m": "6", "it_mu": "6", "moment": "200", "replay": "1"},
    {"it_i": "1", "it_m": "1", "it_mu": "1", "moment": "200", "replay": "0"},
)


def picture_of(name: str) -> str:
    chosen = presets.presets("ppo")[name]["set"]
    inner = next((v for k, v in chosen.items() if k in ("critic_view", "trust_view", "dpo_view", "where_view")), None)
    return inner or chosen["ppo_view"]


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_opens_from_its_link_and_is_marked(open_page, name):
    at = open_page("ppo", link_of("ppo", name))
    sound(at)
    assert not at.warning
    assert not at.error
    assert pictures(at)
    assert at.info[0].value
    assert at.latex[0].value
    assert at.pills[0].value == name


def test_presets_can_be_clicked_one_after_the_other(open_page):
    at = open_page("ppo")
    for view in PARAMS["ppo_view"].choices:
        at.segmented_control(key="choice-ppo_view").set_value(view).run()
        sound(at)
        for name in (n for n in NAMES if presets.presets("ppo")[n]["set"]["ppo_view"] == view):
            at.pills(key=f"preset-ppo-{view}").set_value(name).run()
            sound(at)
            assert at.pills(key=f"preset-ppo-{view}").value == name


@pytest.mark.parametrize("name", NAMES)
def test_every_snippet_prints_what_the_page_shows_and_every_check_has_an_answer(open_page, name):
    at = open_page("ppo", link_of("ppo", name))
    wanted, key = EXPECTED[picture_of(name)]
    at.session_state["take-ppo"] = True
    at.run()
    numbers = printed(at.code[0].value)
    assert numbers
    shown = metrics(at)
    assert missing([shown[w] for w in wanted], numbers) == []
    assert typed_wrong(at, "ppo", key)


def test_the_worked_examples_of_the_articles(open_page):
    def shown(name):
        return metrics(open_page("ppo", link_of("ppo", name)))

    assert (shown("gae")["gae"], shown("gae")["tail"]) == ("+0.713", "0.810")
    assert shown("td")["gae"] == "+0.200"
    assert shown("measured")["gae"] == "+0.800"
    assert shown("bound")["error_bound"] == "1.800"
    assert (shown("pair")["margin"], shown("pair")["dpo_loss"], shown("pair")["dpo_weight"]) == (
        "+0.600", "0.4375", "0.0354",
    )  # fmt: skip
    assert "0.732" in open_page("ppo", link_of("ppo", "optimum")).latex[0].value


def test_the_memory_of_four_three_two_and_one_models(open_page):
    at = open_page("ppo", link_of("ppo", "seven"))
    bars = [trace["y"][0] for trace in pictures(at)[0]["data"]]
    assert {t(f"method.{name}") for name in METHODS} == set(bars)
    assert metrics(at)["memory_ppo"] == "252 GB"
    assert metrics(at)["memory_saved"] == "44 %"


def test_the_group_baseline_follows_the_current_group_and_recipe(open_page):
    query = link_of("ppo", "gae")
    first = metrics(open_page("ppo", query))["group_baseline"]
    assert first == "+1.732"  # 1, 0, 0, 0 with the population std
    assert metrics(open_page("ppo", {**query, "recipe": "trl_dapo"}))["group_baseline"] == "+1.500"
    # the trajectory stands in for completion 1: 1 beside 0, 1, 1
    assert metrics(open_page("ppo", {**query, "g": "half-and-half"}))["group_baseline"] == "+0.577"


@pytest.mark.parametrize("extreme", EXTREMES)
def test_extreme_links_open_in_every_picture(open_page, extreme):
    for view in PARAMS["ppo_view"].choices:
        at = open_page("ppo", {"ppo_view": view, **extreme})
        sound(at)
        assert not at.warning, [w.value for w in at.warning]


@pytest.mark.parametrize("view", [{"ppo_view": "critic"}, {"ppo_view": "where"}])
@pytest.mark.parametrize("recipe", ["remax_paper", "verl_opo", "verl_gdpo"])
def test_a_recipe_with_a_baseline_of_its_own_opens_beside_the_critic(open_page, recipe, view):
    sound(open_page("ppo", {"recipe": recipe, **view}))


def test_every_group_opens_where_the_kl_enters(open_page):
    for group in ("all-right", "all-wrong", "one-unscored", "cut-and-empty", "lengths-10-100", "think-tags"):
        for comp in ("1", "2", "64"):
            sound(open_page("ppo", {"ppo_view": "where", "g": group, "comp": comp}))


@pytest.mark.parametrize("bad", ["", "1", "x,1", "nan,0", "1,2,3,4,5,6,7,8,9", "1e9,0", "<b>,1", "inf,0"])
def test_bad_token_rewards_keep_the_last_good_ones(open_page, bad):
    at = open_page("ppo", link_of("ppo", "gae"))
    at.text_input(key="line-tr").set_value(bad).run()
    sound(at)
    assert len(at.error) == 1
    assert metrics(at)["gae"] == "+0.713"
    at.text_input(key="line-tr").set_value("0, 0, 0, 1").run()
    assert not at.error
    assert at.session_state["grpo_lab"].view.chosen["tr"] == (0.0, 0.0, 0.0, 1.0)


def test_a_bad_link_says_so_and_shows_the_default(open_page):
    at = open_page("ppo", {"ppo_view": "nope", "lam": "7", "tr": "1", "horizon": "2.5", "mem_prec": "<b>"})
    sound(at)
    assert len(at.warning) == 5
    assert not any("<b>" in w.value for w in at.warning)
    assert metrics(at)["gae"] == "+0.713"


def test_moments_are_stepped_through_with_buttons(open_page):
    at = open_page("ppo", link_of("ppo", "fresh"))
    assert at.button(key="moment-back").disabled
    seen = []
    for _ in range(5):
        at.button(key="moment-ahead").click().run()
        sound(at)
        seen.append((metrics(at)["policy_version"], metrics(at)["behind_old"]))
    assert seen[:3] == [("version 0", "0 steps"), ("version 1", "1 steps"), ("version 2", "2 steps")]
    at.button(key="moment-back").click().run()
    assert at.session_state["grpo_lab"].view.chosen["moment"] == 5


def test_the_comparison_is_a_table_with_the_memory_computed(open_page):
    at = open_page("ppo", {"ppo_view": "compared", "mem_p": "1"})
    sound(at)
    table = next(m.value for m in at.markdown if m.value.startswith("|"))
    assert "| 36.0 GB | 18.0 GB | 18.0 GB |" in table
    at.session_state["take-ppo"] = True
    at.session_state["check-compared"] = True
    at.run()
    assert missing(["36.0 GB", "18.0 GB"], printed(at.code[0].value)) == []
    at.number_input(key="answer-compared").set_value(16.0).run()
    assert at.success


def test_a_check_is_answered_by_the_core(open_page):
    at = open_page("ppo", link_of("ppo", "gae"))
    at.session_state["check-critic"] = True
    at.run()
    at.number_input(key="answer-critic").set_value(0.2).run()
    assert at.success[0].value.startswith(t("check.right"))
    assert number(at.success[0].value.split("=")[-1]) == pytest.approx(0.2)


def test_the_words_fit():
    check_words("ppo", "ppo_policy")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_algorithm_1_leads_to_the_scenarios_that_show_it(open_page, language):
    at = open_page("ppo", {"ppo_view": "rounds", "lang": language})
    sound(at)
    links = [element.proto for element in at.get("page_link")]
    asked = [dict(parse_qsl(link.query_string)) for link in links]
    assert [query["scenario"] for query in asked] == list(ON_LIVE)
    assert {query["part"] for query in asked} == {"scenarios"}
    assert set(ON_LIVE) <= set(SCENARIOS)
    assert not open_page("ppo", {"ppo_view": "rounds", "lock": "1"}).get("page_link")


def test_two_equal_steps_are_called_equal(open_page):
    same = prose("ppo", "step-same")
    view = {"ppo_view": "trust", "trust_view": "step", "nat_p": "1,1,1", "nat_r": "0,0.2,1", "nat_d": "0.05"}
    assert open_page("ppo", view).info[0].value == same
    assert open_page("ppo", {**view, "nat_p": "0.7,0.2,0.1"}).info[0].value != same


def test_an_advantage_that_the_kl_leaves_alone_is_not_said_to_turn(open_page):
    at = open_page("ppo", {"ppo_view": "where", "g": "one-of-four"})
    shown = metrics(at)
    assert shown["plain_advantage"] == shown["shaped_advantage"]
    numbers = {"first": "+0.98", "reward": "1.00", "shaped": signed(number(shown["plain_advantage"]), 2)}
    assert at.info[0].value == prose("ppo", "where-same", **numbers)


@pytest.mark.parametrize(
    ("x", "at", "end", "place"), [(2.0, 0, 4, 2.0), (1.5, 0, 2, 2.0), (1.5, 1, 2, 2.0), (1.5, 1, 1, 1.0)]
)
def test_a_versions_number_keeps_off_the_edges_of_the_frame(x, at, end, place):
    assert _beside_frame(x, at, end) == place
