"""Interventions: settings that change while a run trains, and the reference that is copied from the policy."""

import pytest

from grpo_core import RECIPES, compute_advantages
from grpo_core.live.commands import Command, check_command
from grpo_core.live.config import LIVE_SETTINGS, RunConfig
from grpo_core.live.trainer import Run, advantage_spec, train

FAST = {"pace": None, "eval_prompts": 4, "eval_every": 100, "eval_samples": 1, "learning_rate": 1e-3}


def script(*batches):
    """Commands for the first polls: the n-th batch comes before step n."""
    left = list(batches)
    return lambda: left.pop(0) if left else []


def told(events, kind):
    return [event for event in events if event["event"] == kind]


def test_the_size_of_a_step_changes_from_the_next_step():
    wish = {"group_size": 3, "prompts_per_step": 5}
    events = list(train(RunConfig(steps=3, **FAST), script([], [Command("set", wish)])))
    shapes = [(len(e["groups"]), {len(g["rewards"]) for g in e["groups"]}) for e in told(events, "step")]
    assert shapes == [(8, {8}), (5, {3}), (5, {3})]
    assert [e["group_size"] for e in told(events, "step")] == [8, 3, 3]


def test_a_recipe_brings_its_beta_clip_range_and_scaling_and_the_stamp_says_so():
    start = RunConfig(steps=2, scale_rewards="group", surrogate="unclipped", **FAST)
    events = list(train(start, script([], [Command("set", {"recipe": "dapo_paper"})])))
    first, second = told(events, "step")
    (stamp,) = told(events, "command")
    own = RECIPES["dapo_paper"].objective
    assert (second["beta"], second["epsilon_high"]) == (own.beta, own.epsilon_high) == (0.0, 0.28)
    assert stamp["value"] == {
        "recipe": "dapo_paper", "beta": 0.0, "epsilon_low": 0.2, "epsilon_high": 0.28, "scale_rewards": "recipe",
        "surrogate": "recipe",
    }  # fmt: skip
    for step, spec in ((first, advantage_spec(start)), (second, RECIPES["dapo_paper"].advantage)):
        for group in step["groups"]:
            expected = compute_advantages(group["rewards"], spec).advantages
            assert group["advantages"] == pytest.approx(expected.tolist(), abs=1e-6)


def test_what_is_given_beside_a_recipe_wins():
    value = check_command("set", {"recipe": "grpo_paper", "beta": 0.5, "scale_rewards": "none"})
    assert (value["beta"], value["scale_rewards"], value["epsilon_low"]) == (0.5, "none", 0.2)
    assert "beta" not in check_command("set", {"group_size": 4})
    assert set(value) <= set(LIVE_SETTINGS)


@pytest.mark.parametrize(
    ("wish", "effect"),
    [
        ({"scale_rewards": "none"}, lambda a, b: a["groups"][0]["advantages"] != b["groups"][0]["advantages"]),
        ({"inner_epochs": 4}, lambda a, b: b["inner_epochs"] == 4 and b["kl_old"] > 1.5 * a["kl_old"]),
        ({"refills": 8, "group_size": 2}, lambda a, b: b["groups/drawn"] >= 12 and "groups/drawn" not in a),
        ({"top_p": 0.3}, lambda a, b: b["groups"][0]["completions"] != a["groups"][0]["completions"]),
        ({"max_grad_norm": 1e-9}, lambda a, b: b["kl_old"] < 0.5 * a["kl_old"]),
        ({"surrogate": "unclipped", "inner_epochs": 8}, lambda a, b: b["saturated_mean"] == 0 < a["saturated_mean"]),
    ],
)
def test_settings_take_effect_while_it_trains(wish, effect):
    config = RunConfig(steps=2, recipe="grpo_paper", group_size=6, prompts_per_step=6, **FAST)
    more = {"inner_epochs": 8} if "surrogate" in wish else {}
    plain = told(train(config, script([], [Command("set", more or {"pace": None})])), "step")
    changed = told(train(config, script([], [Command("set", wish)])), "step")
    assert plain[0]["reward"] == changed[0]["reward"]
    assert effect(plain[1], changed[1])


def test_refresh_makes_the_reference_a_copy_of_the_policy():
    events = list(train(RunConfig(steps=6, beta=0.1, **FAST), script([], [], [], [Command("refresh")])))
    kls = [event["kl"] for event in told(events, "step")]
    assert kls[0] == pytest.approx(0, abs=1e-9)
    assert kls[2] > 1e-4
    assert kls[3] == pytest.approx(0, abs=1e-9)  # the step after the refresh is sampled before anything moves
    assert kls[4] > 1e-6
    (stamp,) = told(events, "command")
    assert (stamp["name"], stamp["step"]) == ("refresh", 3)


def test_the_reference_is_refreshed_every_few_steps():
    events = list(train(RunConfig(steps=7, refresh_every=3, **FAST)))
    stamps = [(event["name"], event["step"], event["value"]) for event in told(events, "command")]
    assert stamps == [("refresh", 3, {"every": 3}), ("refresh", 6, {"every": 3})]
    kls = {event["step"]: event["kl"] for event in told(events, "step")}
    assert [step for step, kl in kls.items() if kl < 1e-9] == [1, 4, 7]
    later = list(train(RunConfig(steps=3, **FAST), script([], [Command("set", {"refresh_every": 1})])))
    assert [event["step"] for event in told(later, "command") if event["name"] == "refresh"] == [2, 3]


def test_the_engine_of_the_reference_follows_the_refresh():
    run = Run(RunConfig(**FAST))
    places = [parameter.data_ptr() for parameter in run.reference.learned]
    run.step_event()
    drawn = run._draw(_NoClock())
    assert not run._logps(run.engine, drawn.rollout).equal(run._logps(run.reference, drawn.rollout))
    run.refresh()
    assert run._logps(run.engine, drawn.rollout).equal(run._logps(run.reference, drawn.rollout))
    assert places == [parameter.data_ptr() for parameter in run.reference.learned]
    before = run._logps(run.reference, drawn.rollout)
    run.step_event()
    assert run._logps(run.reference, drawn.rollout).equal(before)  # a copy: it does not move with the policy


class _NoClock:
    def lap(self, name):
        pass


def test_what_cannot_change_is_refused_and_the_run_goes_on():
    wrong = [Command("set", {"group_size": 0}), Command("set", {"recipe": "ppo"})]
    events = list(train(RunConfig(steps=1, **FAST), script(wrong)))
    assert ["refused" in event for event in told(events, "command")] == [True, True]
    assert events[-1]["state"] == "finished"
    with pytest.raises(ValueError, match="'task' cannot change during a run"):
        check_command("set", {"task": "shell_game_long"})
    with pytest.raises(ValueError, match="group_size=0 is not accepted"):
        check_command("set", {"group_size": 0})
