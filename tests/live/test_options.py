"""Dynamic sampling, top-p, a failing verifier, an unclipped loss, and mistakes built in on purpose."""

import random

import numpy as np
import pytest
import torch

from grpo_core import sampling_distribution
from grpo_core.live.config import RunConfig, objective_of
from grpo_core.live.draws import Draw, join, join_draws, select
from grpo_core.live.engines import make_engine
from grpo_core.live.rollout import encode
from grpo_core.live.tasks import Score, shell_game
from grpo_core.live.trainer import train

FAST = {"pace": None, "eval_prompts": 10, "eval_every": 100, "eval_samples": 1}


def steps_of(config):
    return [event for event in train(config) if event["event"] == "step"]


@pytest.fixture
def rollouts(policy, draw):
    """Two rollouts of prompts of different lengths."""
    made = []
    for seed, swaps in ((0, 3), (1, 5)):
        problems = [shell_game(random.Random(10 * seed + i), swaps=swaps) for i in range(3)]
        made.append((problems, draw(encode(policy, [p.prompt for p in problems]), group_size=4, seed=seed)))
    return made


def test_joined_rollouts_give_the_same_log_probabilities(policy, rollouts):
    engine = make_engine(policy)
    joined = join([rollout for _, rollout in rollouts])
    assert joined.prompts.mask is not None
    assert joined.completions.tokens.shape[0] == 24
    with torch.no_grad():
        logp = engine.logps(engine.plan(joined.prompts, joined.completions))
    torch.testing.assert_close(logp, joined.logp, atol=2e-5, rtol=0)
    for (_, one), start in zip(rollouts, (0, 12), strict=True):
        width = one.logp.shape[1]
        assert torch.equal(joined.logp[start : start + 12, :width], one.logp)
        assert not joined.logp[start : start + 12, width:].any()
        assert torch.equal(joined.completions.lengths[start : start + 12], one.completions.lengths)


def test_selected_groups_are_those_groups(policy, rollouts):
    joined = join([rollout for _, rollout in rollouts])
    part = select(joined, torch.tensor([4, 1]))
    rows = [16, 17, 18, 19, 4, 5, 6, 7]
    width = int(joined.completions.lengths[rows].max())
    assert part.logp.shape == (8, width)
    assert torch.equal(part.logp, joined.logp[rows, :width])
    assert torch.equal(part.completions.tokens, joined.completions.tokens[rows, :width])
    assert torch.equal(part.finished, joined.finished[rows])
    assert torch.equal(part.prompts.ids, joined.prompts.ids[[4, 1]])


def made_draw(rollouts, rewards):
    draws = []
    for (problems, rollout), values in zip(rollouts, rewards, strict=True):
        lengths = rollout.completions.lengths.tolist()
        rows = [row[:n] for row, n in zip(rollout.completions.tokens.tolist(), lengths, strict=True)]
        scores = [Score(value, 0.0, 0.0) for value in values]
        draws.append(Draw(problems, rollout, rows, [str(i) for i in range(12)], scores))
    return join_draws(draws)


def test_mixed_groups_train_first_and_others_fill_up(rollouts):
    flat, mixed, unscored = [0.0] * 4, [0.0, 1.0, 0.0, 0.0], [None] * 4
    draw = made_draw(rollouts, ([*flat, *mixed, *unscored], [*[1.0] * 4, *mixed, *flat]))
    assert draw.kinds == ["all-wrong", "mixed", "unscored", "all-right", "mixed", "all-wrong"]
    assert draw.mixed == 2
    kept = draw.to_train(3)
    assert [problem.prompt for problem in kept.problems] == [draw.problems[i].prompt for i in (0, 1, 4)]
    assert np.array_equal(kept.rewards, draw.rewards[[0, 1, 4]])
    assert kept.texts == [draw.texts[i * 4 + j] for i in (0, 1, 4) for j in range(4)]
    assert draw.to_train(6) is draw
    assert [problem.prompt for problem in draw.to_train(2).problems] == [draw.problems[i].prompt for i in (1, 4)]


def test_refills_replace_groups_without_signal_and_count_their_tokens():
    config = RunConfig(steps=6, group_size=2, prompts_per_step=4, refills=6, **FAST)
    for step in steps_of(config):
        assert step["groups/trained_mixed"] == sum(group["kind"] == "mixed" for group in step["groups"])
        assert len(step["groups"]) == 4
        drawn = step["groups/drawn"]
        assert drawn in (4, 8, 12, 16, 20, 24, 28)
        kinds = ("mixed", "all-right", "all-wrong", "unscored")
        assert sum(step[f"groups/{kind}"] for kind in kinds) == drawn
        assert step["frac_reward_zero_std"] == pytest.approx(1 - step["groups/mixed"] / drawn)
        # It went on drawing only as long as mixed groups were wanting.
        assert step["groups/trained_mixed"] == 4 or drawn == 28
        assert step["completion_tokens"] > sum(sum(group["lengths"]) for group in step["groups"]) or drawn == 4


def test_without_refills_nothing_is_said_of_them():
    assert "groups/drawn" not in steps_of(RunConfig(steps=1, **FAST))[0]


def test_top_p_draws_from_the_nucleus_only(policy, prompts, draw):
    rollout = draw(prompts, group_size=50, max_new_tokens=1, top_p=0.6)
    engine = make_engine(policy)
    logits, _ = engine.begin(prompts, 1)
    allowed = sampling_distribution(logits, top_p=0.6)
    tokens = rollout.completions.tokens.view(-1, 50)
    assert bool((allowed.gather(1, tokens) > 0).all())
    assert len(tokens.unique()) > 2
    # logp stays the whole distribution's
    whole = logits.log_softmax(-1).gather(1, tokens)
    torch.testing.assert_close(rollout.logp.view(-1, 50), whole)
    shares = torch.stack([(tokens == i).float().mean(1) for i in range(allowed.shape[1])], 1)
    assert (shares - allowed).abs().max() < 0.25


def test_a_failing_verifier_leaves_completions_unscored():
    config = RunConfig(steps=5, verifier_failures=0.3, **FAST)
    steps = steps_of(config)
    groups = [group for step in steps for group in step["groups"]]
    rewards = [reward for group in groups for reward in group["rewards"]]
    missing = sum(reward is None for reward in rewards) / len(rewards)
    assert missing == pytest.approx(0.3, abs=0.08)
    told = [step["completions/unscored_ratio"] for step in steps]
    assert sum(told) / 5 == pytest.approx(missing)
    for group in groups:
        pairs = zip(group["rewards"], group["advantages"], strict=True)
        assert all(advantage == 0 for reward, advantage in pairs if reward is None)
    assert steps_of(config)[0]["groups"][0]["rewards"] == steps[0]["groups"][0]["rewards"]


def test_unscored_as_zero_trains_on_zeros_and_still_counts_the_unscored():
    honest = RunConfig(steps=1, verifier_failures=0.5, **FAST)
    wrong = steps_of(honest.changed(fault="unscored_as_zero"))[0]
    right = steps_of(honest)[0]
    assert wrong["completions/unscored_ratio"] == right["completions/unscored_ratio"] > 0
    assert wrong["reward"] < right["reward"]
    for fair, unfair in zip(right["groups"], wrong["groups"], strict=True):
        assert unfair["rewards"] == [reward or 0.0 for reward in fair["rewards"]]


def test_a_shared_graph_has_the_same_loss_and_no_gradient():
    config = RunConfig(steps=2, learning_rate=1e-3, inner_epochs=2, **FAST)
    right, wrong = steps_of(config), steps_of(config.changed(fault="shared_graph"))
    assert wrong[0]["groups"][0]["rewards"] == right[0]["groups"][0]["rewards"]
    assert all(step["grad_norm"] == 0 and step["kl_old"] < 1e-9 for step in wrong)
    assert right[0]["grad_norm"] > 0
    assert wrong[0]["loss"] != 0  # the mean over a constant length: lengths differ, so that this value is not 0


def test_the_surrogate_can_be_unclipped_or_clipped():
    assert objective_of(RunConfig()).surrogate == "clip"
    assert objective_of(RunConfig(surrogate="unclipped")).surrogate == "unclipped"
    assert objective_of(RunConfig(recipe="trl_cispo")).surrogate == "cispo"
    clipped = objective_of(RunConfig(recipe="trl_cispo", surrogate="clip", epsilon_low=0.1))
    assert (clipped.surrogate, clipped.epsilon_low, dict(clipped.options)) == ("clip", 0.1, {})
    config = RunConfig(steps=2, inner_epochs=6, learning_rate=1e-3, **FAST)
    last, free = steps_of(config)[-1], steps_of(config.changed(surrogate="unclipped"))[-1]
    assert last["clip_ratio/region_mean"] > 0
    assert free["saturated_mean"] == 0 < last["saturated_mean"]
    assert last["loss"] != free["loss"]


def test_clipping_is_no_wall_even_with_one_update_nothing_is_clipped_and_ratios_leave_the_range():
    steps = steps_of(RunConfig(steps=4, learning_rate=2e-3, **FAST))
    assert all(step["clip_ratio/region_mean"] == 0 for step in steps)
    assert all(step["ratio/outside_mean"] > 0.02 for step in steps)
    assert all(step["ratio/min"] < 0.8 and step["ratio/max"] > 1.2 for step in steps)


def test_the_size_of_the_advantages_is_told():
    step = steps_of(RunConfig(steps=1, **FAST))[0]
    advantages = [a for group in step["groups"] for a in group["advantages"]]
    assert step["advantages/abs_mean"] == pytest.approx(sum(map(abs, advantages)) / len(advantages), abs=1e-6)
    assert (step["advantages/min"], step["advantages/max"]) == pytest.approx((min(advantages), max(advantages)))
