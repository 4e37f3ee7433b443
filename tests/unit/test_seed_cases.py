"""Every worked example of cases/seed_examples.json, by topic. A topic that nothing checks fails the suite."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest

from grpo_core import (
    AdvantageSpec,
    as_rewards,
    binary_advantages,
    categorical_kl,
    clip_saturated,
    clipped_slope,
    clipped_surrogate,
    dpo_loss,
    dpo_margin,
    dpo_weight,
    expected_kl,
    expected_reward,
    gae,
    gradient_report,
    group_advantages,
    importance_ratio,
    kl_estimate,
    kl_gradient,
    kl_optimal_policy,
    leave_one_out_advantages,
    mixed_group_probability,
    n_step_advantages,
    n_step_weights,
    natural_gradient_step,
    overlong_penalty,
    pooled_mean,
    preference_probability,
    process_advantages,
    reverse_kl_gradient,
    softmax_outcomes,
    surrogate_error_bound,
    token_advantages,
    token_weights,
    true_gradient,
    weighted_sum,
)
from tests.support import torch_gradient

CASES = json.loads((Path(__file__).parents[1] / "cases" / "seed_examples.json").read_text(encoding="utf-8"))

CHECKS = {}
CLOSE = {"rtol": 1e-12, "atol": 1e-14}


def checks(topic):
    def register(function):
        CHECKS[topic] = function
        return function

    return register


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_seed_example(case):
    if case["topic"] not in CHECKS:
        pytest.fail(f"topic {case['topic']!r} is not covered: add a check for it")
    CHECKS[case["topic"]](case["inputs"], case["expected"])


def test_every_check_is_used():
    assert set(CHECKS) <= {case["topic"] for case in CASES}


@checks("advantages.group")
@checks("advantages.missing")
def check_group(inputs, expected):
    result = group_advantages(inputs["rewards"], ddof=inputs["ddof"], eps=inputs["eps"])
    np.testing.assert_allclose(result.advantages, expected["advantages"], **CLOSE)
    np.testing.assert_allclose(result.std, expected["std"], **CLOSE)
    if expected["mean"] is None:
        assert math.isnan(result.mean)
    else:
        np.testing.assert_allclose(result.mean, expected["mean"], **CLOSE)
    for given, found in zip(expected["advantages"], result.advantages, strict=True):
        assert (given == 0) == (found == 0), "zero must be exactly zero"
    assert int(result.valid_count) == expected.get("valid_count", len(inputs["rewards"]))


@checks("advantages.error")
def check_advantage_error(inputs, expected):
    rewards = [float(r) if isinstance(r, str) else r for r in inputs["rewards"]]
    options = {k: v for k, v in inputs.items() if k != "rewards"}
    assert expected["error"] == "ValueError"
    with pytest.raises(ValueError, match=r"rewards|ddof|eps"):
        group_advantages(rewards, **options)
    if not options:
        with pytest.raises(ValueError, match="rewards"):
            as_rewards(rewards)


@checks("advantages.rloo")
def check_rloo(inputs, expected):
    np.testing.assert_allclose(leave_one_out_advantages(inputs["rewards"]), expected["advantages"], **CLOSE)


@checks("advantages.self_inclusion")
def check_self_inclusion(inputs, expected):
    """Two actions with logit derivative +-p(1-p): the exact expectation over all groups of G draws."""
    size, p = inputs["G"], 0.3
    draws = np.array(list(itertools.product([1.0, 0.0], repeat=size)))
    chance = np.prod(np.where(draws == 1, p, 1 - p), axis=1)
    score = np.where(draws == 1, 1 - p, -p)  # d log pi / d logit
    truth = p * (1 - p)  # d E[R] / d logit

    def expectation(advantages):
        return float((chance * (advantages * score).mean(axis=1)).sum())

    centred = group_advantages(draws, scale="none").advantages
    np.testing.assert_allclose(expectation(centred) / truth, expected["scale"], **CLOSE)
    np.testing.assert_allclose(expectation(leave_one_out_advantages(draws)) / truth, 1.0, **CLOSE)


@checks("advantages.mixed_probability")
def check_mixed(inputs, expected):
    np.testing.assert_allclose(mixed_group_probability(inputs["p"], inputs["G"]), expected["probability"], **CLOSE)


@checks("advantages.binary")
def check_binary(inputs, expected):
    k, size = inputs["successes"], inputs["G"]
    success, failure = binary_advantages(k / size)
    np.testing.assert_allclose([success, failure], [expected["success"], expected["failure"]], **CLOSE)
    group = group_advantages([1.0] * k + [0.0] * (size - k), ddof=0, eps=0.0).advantages
    np.testing.assert_allclose([group[0], group[-1]], [success, failure], **CLOSE)


@checks("advantages.process")
def check_process(inputs, expected):
    ends = [[end for end, _ in steps] for steps in inputs["step_rewards"]]
    rewards = [[reward for _, reward in steps] for steps in inputs["step_rewards"]]
    result = process_advantages(rewards, ends, inputs["lengths"], ddof=inputs["ddof"], eps=inputs["eps"])
    for found, given in zip(result, expected["advantages"], strict=True):
        np.testing.assert_allclose(found, given, **CLOSE)


@checks("advantages.gae")
def check_gae(inputs, expected):
    rewards, values, gamma = inputs["rewards"], inputs["values"], inputs["gamma"]
    result = gae(rewards, values, gamma=gamma, lam=inputs["lam"])
    if "advantages" in expected:
        np.testing.assert_allclose(result, expected["advantages"], **CLOSE)
        deltas = gae(rewards, values, gamma=gamma, lam=0.0)
        np.testing.assert_allclose(deltas, expected["deltas"], **CLOSE)
    else:
        check_n_step(inputs, expected, result)


def check_n_step(inputs, expected, result):
    """GAE is the weighted mean of the n-step estimates, the last weight holding the whole tail."""
    estimates = n_step_advantages(inputs["rewards"], inputs["values"], t=inputs["t"], gamma=inputs["gamma"])
    weights = n_step_weights(len(estimates), lam=inputs["lam"])
    np.testing.assert_allclose(estimates, expected["n_step"], **CLOSE)
    np.testing.assert_allclose(weights, expected["weights"], **CLOSE)
    np.testing.assert_allclose(weights.sum(), 1.0, **CLOSE)
    np.testing.assert_allclose([result[inputs["t"]], estimates @ weights], [expected["total"]] * 2, **CLOSE)


@checks("clipping.ppo")
def check_clip(inputs, expected):
    ratio, advantage = np.array([float(inputs["ratio"])]), np.array([float(inputs["advantage"])])
    clip = {"epsilon_low": inputs["epsilon_low"], "epsilon_high": inputs["epsilon_high"]}
    np.testing.assert_allclose(clipped_surrogate(ratio, advantage, **clip), [expected["objective"]], **CLOSE)
    np.testing.assert_allclose(ratio * advantage, [expected["unclipped"]], **CLOSE)
    np.testing.assert_allclose(clipped_slope(ratio, advantage, **clip), [expected["d_objective_d_ratio"]], **CLOSE)
    assert clip_saturated(ratio, advantage, **clip).tolist() == [expected["saturated"]]

    import torch

    old, mask = torch.tensor([[-1.0]], dtype=torch.float64), torch.tensor([[True]])

    def loss(logp):
        return -clipped_surrogate(importance_ratio(logp, old, mask), torch.tensor(advantage[None]), **clip).sum()

    logp = np.array([[-1.0 + math.log(inputs["ratio"])]])
    np.testing.assert_allclose(float(loss(torch.tensor(logp))), expected["loss"], **CLOSE)
    np.testing.assert_allclose(torch_gradient(loss, logp), [[expected["d_loss_d_logp"]]], **CLOSE)


@checks("clipping.frozen_old")
def check_frozen_old(inputs, expected):
    """The old log-probabilities are data; the wrong version, one graph on both sides, has slope 0 at the same value."""
    import torch

    advantage = torch.tensor([[float(inputs["advantage"])]], dtype=torch.float64)

    def frozen(logp):
        return -clipped_surrogate(importance_ratio(logp, logp, torch.tensor([[True]])), advantage).sum()

    def shared(logp):
        return -clipped_surrogate(torch.exp(logp - logp), advantage).sum()

    at = np.array([[-1.3]])
    assert float(frozen(torch.tensor(at))) == float(shared(torch.tensor(at))) == -inputs["ratio"] * inputs["advantage"]
    assert torch_gradient(frozen, at) == expected["d_loss_d_logp_frozen_old"]
    assert torch_gradient(shared, at) == expected["d_loss_d_logp_same_graph"]


@checks("clipping.error")
def check_overflow(inputs, expected):
    assert "documented finite cap" in expected["error"]
    logp, old = np.array([[inputs["new_logp"]]]), np.array([[inputs["old_logp"]]])
    ratio = importance_ratio(logp, old, np.array([[True]]))
    assert np.isfinite(ratio).all()
    assert "80" in importance_ratio.__doc__


@checks("clipping.sequence_ratio")
def check_sequence_ratio(inputs, expected):
    logp = np.full((1, inputs["length"]), math.log(inputs["token_ratio"]))
    mask = np.ones_like(logp, dtype=bool)
    for level in ("trajectory", "sequence"):
        ratio = importance_ratio(logp, np.zeros_like(logp), mask, level=level)
        np.testing.assert_allclose(ratio, [[expected[f"{level}_ratio"]]], rtol=1e-11)


def _distribution(values):
    return np.array([float(value) for value in values])


@checks("kl.estimators")
def check_kl(inputs, expected):
    p, q = _distribution(inputs["current"]), _distribution(inputs["reference"])
    for name in ("k1", "k2", "k3"):
        values = kl_estimate(np.log(p), np.log(q), estimator=name)
        np.testing.assert_allclose(values, expected[name], **CLOSE)
        np.testing.assert_allclose(p @ values, expected[f"expected_{name}"], **CLOSE)
    np.testing.assert_allclose(categorical_kl(p, q), expected["exact_kl"], **CLOSE)
    np.testing.assert_allclose(categorical_kl(q, p), expected["reverse_kl"], **CLOSE)


@checks("kl.off_policy")
def check_off_policy(inputs, expected):
    behaviour, current, reference = (_distribution(inputs[k]) for k in ("behaviour", "current", "reference"))
    k3 = kl_estimate(np.log(current), np.log(reference))
    logp, old = np.log(current)[None], np.log(behaviour)[None]
    weights = importance_ratio(logp, old, np.ones_like(logp, dtype=bool))[0]
    np.testing.assert_allclose(categorical_kl(current, reference), expected["exact_kl"], **CLOSE)
    np.testing.assert_allclose(behaviour @ k3, expected["unweighted_mean_k3"], **CLOSE)
    np.testing.assert_allclose(behaviour @ (weights * k3), expected["importance_weighted_k3"], **CLOSE)


def _padded(per_token):
    width = max(len(row) for row in per_token)
    values = np.zeros((len(per_token), width))
    for target, row in zip(values, per_token, strict=True):
        target[: len(row)] = row
    mask = np.arange(width)[None] < np.array([len(row) for row in per_token])[:, None]
    return values, mask


@checks("reduction")
def check_reduction(inputs, expected):
    values, mask = _padded(inputs["per_token"])
    for mode, name in (("sequence_mean",) * 2, ("token_mean",) * 2, ("constant", "constant_mean")):
        weights = token_weights(mask, mode=mode, constant=inputs["constant"])
        np.testing.assert_allclose(weighted_sum(values, weights), expected[name], **CLOSE)
        np.testing.assert_allclose(weights[:, 0], expected["weights"][name], **CLOSE)
        assert (weights[~mask] == 0).all()


@checks("reduction.microbatch")
def check_microbatch(inputs, expected):
    parts = [_padded(part["per_token"]) for part in inputs["microbatches"]]
    tokens = sum(int(mask.sum()) for _, mask in parts)
    own = [float(weighted_sum(v, token_weights(m, mode="token_mean"))) for v, m in parts]
    shared = [float(weighted_sum(v, token_weights(m, mode="token_mean", tokens=tokens))) for v, m in parts]
    np.testing.assert_allclose(np.mean(own), expected["mean_of_local_token_means"], **CLOSE)
    np.testing.assert_allclose(sum(shared), expected["global_token_mean"], **CLOSE)
    sums = np.array([v.sum() for v, _ in parts])
    counts = np.array([float(m.sum()) for _, m in parts])
    np.testing.assert_allclose(pooled_mean(sums, counts), expected["global_token_mean"], **CLOSE)


@checks("reduction.error")
def check_empty_response(inputs, expected):
    assert "weight exactly 0" in expected["error"]
    lengths = np.array(inputs["lengths"])
    mask = np.arange(lengths.max())[None] < lengths[:, None]
    for mode in ("sequence_mean", "token_mean", "constant"):
        weights = token_weights(mask, mode=mode, constant=3)
        assert (weights[lengths == 0] == 0).all()
        assert np.isfinite(weights).all()


@checks("gradients.enumerated")
def check_enumerated(inputs, expected):
    outcomes = softmax_outcomes(np.log(inputs["probs"]))
    if "returns" in inputs:
        check_bandit(outcomes, inputs, expected)
        return
    rewards, size = inputs["rewards"], inputs["G"]
    normalised = gradient_report(outcomes, rewards, AdvantageSpec(ddof=0, eps=0.0), group_size=size)
    centred = gradient_report(outcomes, rewards, AdvantageSpec(scale="none"), group_size=size)
    np.testing.assert_allclose(true_gradient(outcomes, rewards), expected["true_gradient"], **CLOSE)
    np.testing.assert_allclose(normalised.expected, expected["std_normalised"], **CLOSE)
    np.testing.assert_allclose(centred.expected, expected["centred_only"], **CLOSE)
    np.testing.assert_allclose(centred.scale, (size - 1) / size, **CLOSE)


def check_bandit(outcomes, inputs, expected):
    value = expected_reward(outcomes, inputs["returns"])
    np.testing.assert_allclose(value, expected["value"], **CLOSE)
    advantages = token_advantages(outcomes, inputs["returns"])[:, 0]
    np.testing.assert_allclose(advantages, expected["advantages"], **CLOSE)
    np.testing.assert_allclose(true_gradient(outcomes, inputs["returns"])[0], expected["d_logit"], **CLOSE)


@checks("kl.gradients")
def check_kl_gradients(inputs, expected):
    p, q = _distribution(inputs["current"]), _distribution(inputs["reference"])
    np.testing.assert_allclose(kl_gradient(p, q), expected["grad_kl_current_reference"], **CLOSE)
    np.testing.assert_allclose(reverse_kl_gradient(p, q), expected["grad_kl_reference_current"], **CLOSE)
    for name in ("k1", "k2", "k3"):
        frozen = expected_kl(p, q, estimator=name).gradient
        np.testing.assert_allclose(frozen, expected[f"expected_grad_{name}_samples_frozen"], **CLOSE)


@checks("rewards.overlong")
def check_overlong(inputs, expected):
    penalty = overlong_penalty(inputs["length"], max_length=inputs["max_length"], cache=inputs["cache"])
    np.testing.assert_allclose(penalty, expected["penalty"], **CLOSE)


@checks("trust_region")
def check_trust_region(inputs, expected):
    if "bound" in expected:
        bound = surrogate_error_bound(inputs["alpha"], inputs["a_max"], horizon=inputs["T"])
        np.testing.assert_allclose(bound, expected["bound"], **CLOSE)
        return
    gradient, fisher = np.array(inputs["gradient"]), np.array(inputs["fisher"])
    step = natural_gradient_step(gradient, fisher, delta=inputs["delta"])
    np.testing.assert_allclose(step, expected["step"], **CLOSE)
    np.testing.assert_allclose(0.5 * step @ fisher @ step, inputs["delta"], **CLOSE)


@checks("preference")
def check_preference(inputs, expected):
    if "probability" in expected:
        w, loser = inputs["reward_w"], inputs["reward_l"]
        for shift in (0.0, 100.0):
            chance = preference_probability(w + shift, loser + shift)
            np.testing.assert_allclose(chance, expected["probability"], **CLOSE)
    elif "policy" in expected:
        policy = kl_optimal_policy(np.array(inputs["reference"]), np.array(inputs["rewards"]), beta=inputs["beta"])
        np.testing.assert_allclose(policy, expected["policy"], **CLOSE)
    else:
        pair = [np.array(inputs[name]) for name in ("logp_w", "ref_logp_w", "logp_l", "ref_logp_l")]
        for function, name in ((dpo_margin, "z"), (dpo_loss, "loss"), (dpo_weight, "weight")):
            np.testing.assert_allclose(function(*pair, beta=inputs["beta"]), expected[name], **CLOSE)
