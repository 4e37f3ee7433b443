"""The trainer: its events, that a seed repeats them, that commands take effect, and that it learns."""

import json
import time

import pytest
import torch

from grpo_core import compute_advantages, group_kind
from grpo_core.live.commands import Command
from grpo_core.live.config import RunConfig
from grpo_core.live.groups import event_group, light_group
from grpo_core.live.trainer import advantage_spec, train

FAST = {"pace": None, "eval_prompts": 20}
STEP_METRICS = {
    "reward", "reward_mean", "reward_std", "frac_reward_zero_std", "rewards/accuracy/mean", "rewards/format/mean",
    "groups/mixed", "groups/all-right", "groups/all-wrong", "groups/unscored", "completions/mean_length",
    "completions/clipped_ratio", "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean", "kl",
    "kl_old", "entropy", "grad_norm", "loss", "learning_rate", "beta", "tokens_per_second", "num_tokens", "step_time",
    "time/sampling", "time/scoring", "time/reference", "time/update", "time/probe",
}  # fmt: skip


def timeless(events):
    """Events without what a clock said."""
    clocks = ("seconds", "step_time", "train_seconds", "tokens_per_second")
    return [{k: v for k, v in event.items() if k not in clocks and not k.startswith("time/")} for event in events]


def steps_of(events):
    return [event for event in events if event["event"] == "step"]


def test_two_real_steps():
    config = RunConfig(steps=2, group_size=6, prompts_per_step=3, eval_every=1, learning_rate=1e-3, **FAST)
    events = list(train(config))
    assert [event["event"] for event in events] == ["start", "eval", "step", "eval", "step", "eval", "end"]
    json.dumps(events, allow_nan=False)
    start, end = events[0], events[-1]
    assert start["config"] == config.to_dict()
    assert (start["model"], start["parameters"], start["device"]) == ("GPT2LMHeadModel", 109_696, "cpu")
    assert (end["state"], end["step"]) == ("finished", 2)
    for step in steps_of(events):
        assert set(step) >= STEP_METRICS
        assert len(step["groups"]) == 3
        assert sum(step["ratio_histogram"]["counts"]) == step["completion_tokens"]
        for group in step["groups"]:
            check_group(group, config)
    first, second = steps_of(events)
    assert first["kl"] == pytest.approx(0, abs=1e-9)  # the policy still is the reference
    assert second["kl"] > 1e-6
    assert first["kl_old"] > 1e-6


def check_group(group, config):
    assert len(group["completions"]) == config.group_size
    assert group["kind"] == group_kind(group["rewards"])
    expected = compute_advantages(group["rewards"], advantage_spec(config))
    assert group["advantages"] == pytest.approx(expected.advantages.tolist(), abs=1e-6)
    assert group["mean"] == pytest.approx(float(expected.mean), abs=1e-6)
    for text, tokens, length, finish in zip(
        group["completions"], group["tokens"], group["lengths"], group["finish"], strict=True
    ):
        assert len(tokens) == length
        assert text == "".join(token for token in tokens if token != "<eos>")
        assert (tokens[-1] == "<eos>") == (finish == "eos")
    core = event_group(group)
    assert core.completions[0] == "".join(group["tokens"][0])
    assert core.old_logp != core.logp
    assert set(light_group(group)) >= {"prompt", "completions", "rewards", "mean", "std", "advantages", "kind"}


def test_the_same_seed_gives_the_same_curve_and_another_one_does_not():
    config = RunConfig(steps=4, inner_epochs=2, beta=0.1, learning_rate=1e-3, **FAST)
    events = timeless(train(config))
    assert timeless(train(config)) == events
    assert steps_of(timeless(train(config.changed(seed=1)))) != steps_of(events)


def test_evaluating_and_probing_change_nothing_in_the_training():
    config = RunConfig(steps=4, learning_rate=1e-3, **FAST)
    often = steps_of(train(config.changed(eval_every=1)))
    seldom = steps_of(train(config.changed(eval_every=100, probe=False)))
    assert [e["reward"] for e in often] == [e["reward"] for e in seldom]
    assert [e["loss"] for e in often] == [e["loss"] for e in seldom]
    assert "kl_old" not in seldom[0]
    assert "ratio_histogram" not in seldom[0]
    group = seldom[0]["groups"][0]
    assert group["ref_logp"] is None
    assert group["logp"] == group["old_logp"]


def test_the_default_run_learns_to_think():
    events = list(train(RunConfig(steps=60, **{**FAST, "eval_prompts": 100})))
    accuracy = {event["step"]: event["accuracy"] for event in events if event["event"] == "eval"}
    assert accuracy[0] < 0.35
    assert accuracy[60] >= 0.9
    steps = steps_of(events)
    late, early = steps[-10:], steps[:10]
    for name, growth in (("reward", 0.3), ("completions/mean_length", 3.0), ("rewards/format/mean", 0.15)):
        assert mean(late, name) > mean(early, name) + growth
    assert mean(late, "entropy") < 0.5 * mean(early, "entropy")


def mean(events, name):
    return sum(event[name] for event in events) / len(events)


class Script:
    """Commands that arrive after given events; a pause is ended by commands on a later poll."""

    def __init__(self, *batches):
        self.batches, self.polls = list(batches), 0

    def __call__(self):
        self.polls += 1
        return self.batches.pop(0) if self.batches else []


def test_pause_step_and_resume():
    script = Script([Command("pause")], [], [Command("step")], [], [], [Command("resume")])
    events = list(train(RunConfig(steps=3, eval_every=100, **FAST), script))
    told = [(event.get("name", event["event"]), event["step"]) for event in events]
    assert told == [
        ("start", 0), ("eval", 0), ("pause", 0), ("step", 0), ("step", 1), ("resume", 1), ("step", 2), ("step", 3),
        ("eval", 3), ("end", 3),
    ]  # fmt: skip
    assert script.polls > 6


def test_paused_time_does_not_count():
    script = Script([Command("pause")], *[[]] * 10, [Command("resume")])
    began = time.perf_counter()
    events = list(train(RunConfig(steps=1, **FAST), script))
    resumed = next(event for event in events if event.get("name") == "resume")
    assert resumed["seconds"] < time.perf_counter() - began - 0.2  # ten polls of 0.02 s were spent in the pause


def test_a_run_can_be_stopped_also_while_paused():
    events = list(train(RunConfig(steps=50, **FAST), Script([], [Command("pause")], [], [Command("stop")])))
    assert (events[-1]["state"], events[-1]["step"]) == ("stopped", 1)


def test_settings_change_from_the_next_step_and_are_stamped():
    wish = {"learning_rate": 0.0, "beta": 0.5, "temperature": 0.7, "pace": None}
    script = Script([], [Command("set", wish)], [Command("set", {"learning_rate": -1})])
    events = list(train(RunConfig(steps=3, eval_every=100, **FAST), script))
    first, second, third = steps_of(events)
    assert (first["learning_rate"], first["beta"]) == (1e-4, 0.0)
    assert (second["learning_rate"], second["beta"], second["temperature"]) == (0.0, 0.5, 0.7)
    assert second["kl_old"] == pytest.approx(0.0, abs=1e-9)  # with learning rate 0 nothing moves
    done, refused = [event for event in events if event["event"] == "command"]
    assert (done["step"], done["value"], "refused" in done) == (1, wish, False)
    assert "a number from 0 to 1" in refused["refused"]
    assert third["learning_rate"] == 0.0


def test_the_pace_is_kept():
    began = time.perf_counter()
    list(train(RunConfig(steps=4, pace=8, eval_every=100, eval_prompts=20)))
    assert time.perf_counter() - began > 3 / 8


def test_weights_that_are_no_numbers_end_the_run_as_failed():
    events = train(RunConfig(steps=9, eval_every=100, **FAST))
    kept = [next(events) for _ in range(4)]
    with torch.no_grad():
        events.gi_frame.f_locals["run"].optimizer.weights[:1000] = float("nan")
    rest = list(events)
    assert kept[-1]["step"] == 2
    assert [event["event"] for event in rest] == ["end"]
    assert (rest[0]["state"], rest[0]["step"]) == ("failed", 2)
    assert "Step 3 cannot be taken" in rest[0]["reason"]
    assert "nan" in rest[0]["reason"]


def test_a_group_of_one_runs_and_is_warned_about():
    events = list(train(RunConfig(steps=2, group_size=1, **FAST)))
    assert events[0]["warnings"] == ["group_of_one"]
    step = steps_of(events)[-1]
    assert all(group["advantages"] == [0.0] for group in step["groups"])
    assert step["loss"] == 0.0


@pytest.mark.parametrize(
    "recipe", ["gspo_paper", "remax_paper", "reinforce_plus_plus_paper", "gdpo_paper", "verl_clip_cov"]
)
def test_recipes_that_need_more_than_rewards_train(recipe):
    events = list(train(RunConfig.for_recipe(recipe, steps=2, inner_epochs=2, **FAST)))
    assert events[-1]["state"] == "finished"
    assert steps_of(events)[-1]["grad_norm"] > 0


@pytest.mark.parametrize("task", ["shell_game_short", "shell_game_long", "shell_game_lenient", "shell_game_format"])
def test_the_other_tasks_train(task):
    events = list(train(RunConfig(task=task, steps=2, **FAST)))
    step = steps_of(events)[-1]
    assert 0 < step["reward"] < 1
    if task in ("shell_game_lenient", "shell_game_format"):
        assert step["reward"] > step["rewards/accuracy/mean"]
