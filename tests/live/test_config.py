"""Run settings: what is accepted, and what is said of the rest."""

import json

import pytest

from grpo_core import RECIPES
from grpo_core.live.config import LIVE_SETTINGS, RunConfig, accepted, check_live_setting


def test_settings_survive_json():
    config = RunConfig(group_size=4, pace=None, note="a note", recipe="trl_dapo")
    assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_text_and_whole_floats_are_read_as_numbers():
    config = RunConfig(group_size="4", steps=10.0, learning_rate="1e-3")
    assert (config.group_size, config.steps, config.learning_rate) == (4, 10, 1e-3)
    assert isinstance(config.steps, int)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("group_size", 0, "a whole number from 1 to 64"),
        ("group_size", 2.5, "a whole number from 1 to 64"),
        ("group_size", True, "a whole number from 1 to 64"),
        ("learning_rate", float("nan"), "a number from 0 to 1"),
        ("learning_rate", None, "a number from 0 to 1"),
        ("epsilon_low", 1.5, "a number from 0 to 1"),
        ("epsilon_high", -0.1, "a number from 0 to 100"),
        ("temperature", 1e-300, "a number from 0.001 to 10"),
        ("pace", 0, "a number above 0 up to 1000, or none"),
        ("task", "chess", "one of shell_game, "),
        ("recipe", "ppo", "one of grpo_paper, "),
        ("scale_rewards", "std", "one of recipe, group, batch, none"),
        ("probe", 1, "true or false"),
        ("steps", 10**400, "a whole number from 1 to 100000"),
        ("seed", "one", "a whole number from 0"),
        ("note", "x" * 501, "at most 500 characters"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_accepted(name, value, expected):
    with pytest.raises(ValueError, match=f"{name}=") as caught:
        RunConfig.from_dict({name: value})
    assert expected in str(caught.value)
    assert len(str(caught.value)) < 2500


def test_an_unknown_setting_gets_a_hint():
    with pytest.raises(ValueError, match="did you mean group_size"):
        RunConfig.from_dict({"groupsize": 4})


@pytest.mark.parametrize("epsilon", [0, 1])
def test_the_ends_of_the_clip_range_are_accepted(epsilon):
    assert RunConfig(epsilon_low=epsilon, epsilon_high=epsilon).epsilon_low == epsilon


def test_a_recipe_brings_its_own_beta_and_clip_range():
    assert RunConfig.for_recipe("dapo_paper").epsilon_high == 0.28
    assert RunConfig.for_recipe("grpo_paper").beta == RECIPES["grpo_paper"].objective.beta > 0
    assert RunConfig.for_recipe("grpo_paper", beta=0.5).beta == 0.5
    assert RunConfig(recipe="grpo_paper").beta == 0.0
    with pytest.raises(ValueError, match="give one of grpo_paper"):
        RunConfig.for_recipe("dapo-paper")


def test_what_teaches_nothing_is_named():
    assert RunConfig().warnings() == ()
    assert RunConfig(group_size=1, learning_rate=0).warnings() == ("group_of_one", "learning_rate_zero")


def test_only_some_settings_change_while_a_run_goes_on():
    assert check_live_setting("beta", "0.1") == 0.1
    assert set(LIVE_SETTINGS) < set(RunConfig().to_dict())
    with pytest.raises(ValueError, match="'seed' cannot change during a run: accepted are learning_rate"):
        check_live_setting("seed", 3)


def test_every_setting_says_what_it_accepts():
    assert all(accepted(name) for name in RunConfig().to_dict())
