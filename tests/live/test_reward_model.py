"""The learned reward model: what it learns from, what it says, and a run that trains with it."""

import itertools
import math
import random

import numpy as np
import pytest
import torch

from grpo_core import process_advantages
from grpo_core.iterations import replay_shares
from grpo_core.live import reward_model as module
from grpo_core.live import trainer
from grpo_core.live.checkpoints import Checkpoints
from grpo_core.live.config import RunConfig
from grpo_core.live.model import new_policy
from grpo_core.live.reward_model import (
    OLDER,
    Example,
    Replay,
    RewardModel,
    agreement,
    examples_of,
    reward_model_metrics,
    sequences,
)
from grpo_core.live.rollout import own_tokens
from grpo_core.live.tasks import TASKS, Score, shell_game
from grpo_core.live.trainer import Run, train
from tests.live.test_trainer import steps_of, timeless

FAST = {"pace": None, "eval_prompts": 4, "eval_samples": 2, "eval_every": 4, "prompts_per_step": 4}
LEARNED = {**FAST, "reward_source": "learned", "iteration_steps": 3}


@pytest.fixture
def quick(monkeypatch):
    """A reward model that learns for a moment only."""
    for name, value in (("START_EXAMPLES", 64), ("START_UPDATES", 6), ("UPDATES", 4)):
        monkeypatch.setattr(module, name, value)


def example(i, label=1.0):
    return Example((i,), label)


def iterations(events):
    return [event for event in events if event.get("name") == "iteration"]


# Examples


def test_examples_are_drawn_by_the_shares_of_their_iterations():
    replay = Replay()
    for number, size in enumerate((5, 50, 500)):
        replay.add([example(number)] * size)
        if number < 2:
            replay.close()
    chances = torch.Generator().manual_seed(0)
    drawn = [one.tokens[0] for one in replay.draw(20_000, replay=0.2, chances=chances)]
    found = np.bincount(drawn) / len(drawn)
    np.testing.assert_allclose(found, replay_shares(3, replay=0.2), atol=0.01)  # 3 standard errors


def test_old_examples_are_thinned_evenly_and_in_order():
    replay = Replay()
    for number in range(4):
        replay.add([example(number * 10_000 + i) for i in range(6000)])
        replay.close()
    sizes = [len(examples) for examples in replay.rounds]
    assert sizes[-1] == 0
    assert sum(sizes) <= OLDER
    assert min(sizes[:-1]) == OLDER // 4
    for number, examples in enumerate(replay.rounds[:-1]):
        places = [one.tokens[0] - number * 10_000 for one in examples]
        assert places == sorted(places)
        assert places[0] < 30
        assert places[-1] > 5900


def test_an_iteration_without_examples_leaves_no_trace():
    replay = Replay()
    replay.close()
    replay.add([example(1)])
    replay.close()
    replay.close()
    assert [len(examples) for examples in replay.rounds] == [1, 0]
    assert replay.draw(3, replay=0.5, chances=torch.Generator()) == [example(1)] * 3


def test_examples_are_prompt_and_completion_without_padding(policy, padded_prompts, draw):
    rollout = draw(padded_prompts, group_size=2)
    scores = [Score(reward, 0.0, 0.0) for reward in (1.0, None, 2.5, -1.0) for _ in range(3)]
    found = examples_of(rollout, scores)
    assert [one.label for one in found] == [1.0] * 3 + [1.0] * 3 + [0.0] * 3  # cut to [0, 1]; unscored left out
    prompts = [shell_game(random.Random(i), swaps=3 + i % 4).prompt for i in range(6)]
    rows = [*range(3), *range(6, 12)]
    texts = policy.texts(own_tokens(rollout))
    assert policy.texts([one.tokens for one in found]) == [prompts[row // 2] + texts[row] for row in rows]


# The model


def test_padding_changes_no_score(policy, padded_prompts, draw):
    model = RewardModel(policy, seed=0, replay=0.1)
    tokens = sequences(draw(padded_prompts), range(30))
    assert len({len(row) for row in tokens}) > 3
    together = model.scores(tokens).detach()
    alone = torch.cat([model.scores([row]) for row in tokens]).detach()
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=1e-5)


def test_it_learns_which_completions_are_right_and_says_the_same_of_the_same(policy, draw, prompts):
    model, rng = RewardModel(policy, seed=0, replay=0.1), random.Random(5)
    problems = TASKS["shell_game"].sample(rng, 60)
    texts = [f"<bos>{p.prompt}<answer>{p.answer}</answer><eos>" for p in problems]
    wrong = [f"<bos>{p.prompt}{p.answer}<eos>" for p in problems]
    rows = policy.encode([*texts, *wrong])
    model.replay.add([Example(tuple(row), float(i < 60)) for i, row in enumerate(rows)])
    before = [tensor.clone() for tensor in policy.model.parameters()]
    found = model.fit(30)
    assert found["examples"] == 120
    assert found["reward_model/accuracy"] > 0.95
    assert found["reward_model/loss"] < 0.2
    assert all(torch.equal(a, b) for a, b in zip(before, policy.model.parameters(), strict=True))  # its own weights
    rollout = draw(prompts, group_size=8)
    scores = [Score(0.0, 0.0, 0.0)] * 48
    judged = model.judge(rollout, scores)
    completions = [(row // 8, *own) for row, own in enumerate(own_tokens(rollout))]
    rewards = {}
    for key, score in zip(completions, judged, strict=True):
        assert rewards.setdefault(key, score.reward) == score.reward
        assert 0.0 <= score.reward <= 1.0
        assert score.verified == 0.0
    assert len(set(completions)) < 48  # some were the same
    expected = torch.sigmoid(model.scores(sequences(rollout, [7]))).item()
    assert judged[7].reward == pytest.approx(expected, abs=2e-6)


def test_the_seed_decides_and_a_snapshot_brings_everything_back(policy):
    def trained(seed):
        model = RewardModel(policy, seed=seed, replay=0.3)
        for number in range(2):
            model.replay.add([Example((1, 9 + i % 7, 8 + number), float(i % 2)) for i in range(10)])
            model.fit(3)
        model.replay.add([Example((1, 9), 0.25)])
        return model

    one, other, third = trained(1), trained(1), trained(2)
    tokens = [[1, 9, 10], [1, 12]]
    assert torch.equal(one.scores(tokens), other.scores(tokens))
    assert not torch.equal(one.scores(tokens), third.scores(tokens))
    third.restore({name: tensor.clone() for name, tensor in one.snapshot().items()})
    assert third.replay.rounds == one.replay.rounds
    assert one.fit(2) == third.fit(2)
    assert torch.equal(one.scores(tokens), third.scores(tokens))


def test_other_models_have_reward_models_too(draw):
    policy = new_policy(seed=0, width=32, layers=1, family="llama")
    model = RewardModel(policy, seed=0, replay=0.1)
    assert model.scores([[5, 6, 7], [5]]).shape == (2,)


def test_an_adapter_has_no_reward_model_of_its_own(policy):
    for parameter in list(policy.model.parameters())[:3]:
        parameter.requires_grad_(False)
    with pytest.raises(ValueError, match="give lora_rank=0"):
        RewardModel(policy, seed=0, replay=0.1)


def test_metrics_by_hand():
    scores = [Score(0.75, 0, 0, 1.0), Score(0.75, 0, 0, 0.0), Score(0.5, 0, 0, 0.0), Score(0.9, 0, 0, None)]
    found = reward_model_metrics(scores)
    assert found["reward_exact"] == pytest.approx(1 / 3)
    assert found["reward_model/accuracy"] == pytest.approx(2 / 3)
    assert found["reward_model/loss"] == pytest.approx((-math.log(0.75) - math.log(0.25) + math.log(2)) / 3)
    assert reward_model_metrics([Score(1.0, 1.0, 1.0)]) == {}
    assert agreement(torch.tensor([1.0, -1.0, 2.0, 0.0]), torch.tensor([1.0, 0.0, 0.2, 0.5])) == 0.75


# Runs


def test_a_run_trains_with_the_learned_reward_and_measures_the_verifier(quick):
    events = list(train(RunConfig(steps=7, **LEARNED)))
    assert [(event["step"], event["value"]["number"]) for event in iterations(events)] == [(0, 0), (3, 1), (6, 2)]
    assert [event["value"]["examples"] for event in iterations(events)] == [64, 96, 96]
    for step in steps_of(events):
        rewards = [reward for group in step["groups"] for reward in group["rewards"]]
        right = [part for group in step["groups"] for part in group["reward_parts"]["accuracy"]]
        assert len(set(rewards)) > 4
        assert step["reward"] == pytest.approx(np.mean(rewards), rel=1e-6)
        assert step["reward_exact"] == pytest.approx(np.mean(right), abs=0.3)
        assert 0.0 <= step["reward_model/accuracy"] <= 1.0
        for group in step["groups"]:
            centred = np.array(group["rewards"]) - np.mean(group["rewards"])
            np.testing.assert_allclose(group["advantages"], centred, atol=2e-6)  # dr_grpo_paper: no std
    assert events[-1]["state"] == "finished"


def test_the_verifier_says_what_it_says_without_a_reward_model(quick):
    # The first step samples the same completions whoever judges them.
    plain = steps_of(train(RunConfig(steps=1, **FAST)))[0]
    learned = steps_of(train(RunConfig(steps=1, **LEARNED)))[0]
    assert [g["completions"] for g in plain["groups"]] == [g["completions"] for g in learned["groups"]]
    assert learned["reward_exact"] == plain["reward"]
    assert "reward_exact" not in plain


def test_without_retraining_nothing_is_learnt_after_the_start(quick):
    run = Run(RunConfig(steps=4, retrain=False, **LEARNED))
    list(run.first_labels())
    before = run.reward_model.snapshot()
    before = {name: tensor.clone() for name, tensor in before.items()}
    for _ in range(3):
        run.step_event()
    (event,) = run.iteration_event()
    assert event["value"] == {"number": 1}
    after = run.reward_model.snapshot()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_an_iteration_refreshes_the_reference_with_either_reward():
    steps = steps_of(train(RunConfig(steps=4, iteration_steps=3, learning_rate=1e-3, **FAST)))
    assert steps[2]["kl"] > 1e-4
    assert steps[3]["kl"] == pytest.approx(0.0, abs=1e-9)


def test_a_run_goes_on_from_its_checkpoint_with_its_reward_model(tmp_path, quick):
    config = RunConfig(steps=8, checkpoint_every=2, learning_rate=1e-3, verifier_failures=0.1, refills=1, **LEARNED)
    straight = timeless(train(config, checkpoints=Checkpoints(tmp_path / "straight")))
    kept = Checkpoints(tmp_path / "cut")
    first = list(itertools.takewhile(lambda event: event["step"] < 6, train(config, checkpoints=kept)))
    begin = kept.newest()
    assert begin.step == 4  # between two retrainings: examples of the third iteration are in it
    told, *rest = timeless(train(RunConfig(), checkpoints=kept, begin=begin))
    assert told["name"] == "continued"
    assert timeless(first)[: begin.events] + rest == straight
    assert len(iterations(rest)) == 1


@pytest.mark.parametrize("recipe", ["remax_paper", "trl_grpo", "rloo_paper"])
def test_recipes_train_with_a_learned_reward(recipe, quick):
    events = list(train(RunConfig(recipe=recipe, steps=2, **LEARNED)))
    assert steps_of(events)[-1]["grad_norm"] > 0


# Process supervision


@pytest.mark.parametrize(("recipe", "scale"), [("trl_grpo", "group"), ("dr_grpo_paper", "none")])
def test_the_update_uses_process_advantages_of_a_real_rollout(recipe, scale, monkeypatch):
    run = Run(RunConfig(recipe=recipe, supervision="process", **FAST))
    used, real = [], trainer.update

    def update(*parts, **more):
        used.append(parts[3].advantages)
        return real(*parts, **more)

    monkeypatch.setattr(trainer, "update", update)
    event = run.step_event()
    ddof, eps = (1, 1e-4) if scale == "group" else (0, 0.0)
    rows = []
    for group in event["groups"]:
        by_hand = process_advantages(
            group["step_rewards"], group["step_ends"], group["lengths"], ddof=ddof, eps=eps, scale=scale
        )
        rows += by_hand
        for row, written, mean in zip(by_hand, group["token_advantages"], group["advantages"], strict=True):
            np.testing.assert_allclose(written, row, atol=1e-6)
            assert mean == pytest.approx(row.mean(), abs=2e-6)
        assert [rewards[-1] for rewards in group["step_rewards"]] == group["rewards"]
    assert any(len(ends) > 1 for group in event["groups"] for ends in group["step_ends"])
    (advantages,) = used
    for row, got in zip(rows, advantages.numpy(), strict=True):
        np.testing.assert_allclose(got[: len(row)], row, atol=1e-6)
        assert not got[len(row) :].any()


@pytest.mark.parametrize(
    "recipe", ["gspo_paper", "trl_cispo", "trl_sapo", "trl_gmpo", "verl_clip_cov", "grpo_paper", "remax_paper"]
)
def test_recipes_train_with_process_supervision(recipe):
    events = list(train(RunConfig.for_recipe(recipe, supervision="process", steps=2, inner_epochs=2, **FAST)))
    assert events[-1]["state"] == "finished"
    assert steps_of(events)[-1]["grad_norm"] > 0


def test_a_run_learns_from_the_rewards_of_its_steps():
    events = list(train(RunConfig(supervision="process", steps=60, pace=None, eval_every=60)))
    first, last = (event for event in events if event["event"] == "eval")
    assert first["sampled_accuracy"] < 0.3
    assert last["sampled_accuracy"] > 0.7
    assert steps_of(events)[-1]["steps/count"] > steps_of(events)[0]["steps/count"] + 2
