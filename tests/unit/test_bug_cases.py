"""Mistakes that trainers really made (cases/bug_reports.json), each with the number it should have been."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import grpo_core as core
from grpo_core import Accounting, AdvantageSpec, GroupBatch, Objective
from tests.support import torch_gradient

CASES = json.loads((Path(__file__).parents[1] / "cases" / "bug_reports.json").read_text(encoding="utf-8"))
CHECKS = {}
ROUNDED = {"atol": 1e-6, "rtol": 1e-6}  # the reports give six decimals


def checks(name):
    def register(function):
        CHECKS[name] = function
        return function

    return register


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_bug_report(case):
    if case["id"] not in CHECKS:
        pytest.fail(f"{case['id']} ({case['topic']}) is not covered: add a check for it")
    CHECKS[case["id"]](case["input"], case["expected"])


def batch(ratio, advantages, mask, **parts):
    """Return a batch whose token ratios are `ratio`."""
    mask = np.asarray(mask, dtype=bool)
    logp = np.full(mask.shape, -1.0)
    old = logp - np.log(np.broadcast_to(ratio, mask.shape))
    fields = {"ref_logp": None, **parts}
    return GroupBatch(logp=logp, old_logp=old, mask=mask, advantages=np.asarray(advantages, dtype=float), **fields)


def ragged(lengths, width=None):
    return np.arange(width or max(lengths))[None] < np.asarray(lengths)[:, None]


@checks("B01")
def missing_is_not_zero(given, expected):
    result = core.group_advantages(given["rewards"], ddof=given["ddof"], eps=given["eps"])
    np.testing.assert_allclose(result.advantages, expected["advantages"], **ROUNDED)
    np.testing.assert_allclose([result.mean, result.std], [expected["group_mean"], expected["group_std"]], **ROUNDED)
    zeroed = [0 if r is None else r for r in given["rewards"]]
    wrong = core.group_advantages(zeroed, ddof=given["ddof"], eps=given["eps"]).advantages
    np.testing.assert_allclose(wrong, expected["wrong_if_none_is_zero"], **ROUNDED)


@checks("B03")
def one_completion(given, expected):
    result = core.group_advantages(given["rewards"], eps=given["eps"])
    assert result.advantages.tolist() == expected["advantages"]
    assert float(result.std) == expected["group_std_reported"]


@checks("B05")
def equal_rewards_in_float32(given, expected):
    import torch

    for rewards in (np.array(given["rewards"], dtype=given["dtype"]), torch.tensor(given["rewards"])):
        result = core.group_advantages(rewards, eps=given["eps"])
        assert result.advantages.tolist() == expected["advantages"]
        assert (float(result.std) == 0) is expected["is_zero_std"]
    assert core.group_kind(given["rewards"]) == "all-wrong"


@checks("B07")
def leave_one_out_without_a_std(given, expected):
    advantages = core.leave_one_out_advantages(given["rewards"])
    np.testing.assert_allclose(advantages, expected["advantages_unscaled"], **ROUNDED)
    np.testing.assert_allclose(given["rewards"] - advantages, expected["loo_baselines"], **ROUNDED)


@checks("B09")
def eps_outside_the_root(given, expected):
    result = core.group_advantages(given["rewards"], ddof=given["ddof"], eps=given["eps"]).advantages
    np.testing.assert_allclose(result, expected["advantages"], **ROUNDED)


@checks("B11")
def rejected_row_leaves_the_group(given, expected):
    rewards = [r if kept else None for r, kept in zip(given["rewards"], given["accepted"], strict=True)]
    result = core.group_advantages(rewards, eps=given["eps"]).advantages
    np.testing.assert_allclose(result, expected["advantages"], **ROUNDED)
    wrong = core.group_advantages(given["rewards"], eps=given["eps"]).advantages
    np.testing.assert_allclose(wrong, expected["wrong_with_rejected_row"], **ROUNDED)


@checks("B13")
def groups_are_by_prompt(given, expected):
    """A Group holds one prompt, so that rows of different prompts cannot meet; a bare reshape invents a signal."""
    found = np.zeros(len(given["rewards"]))
    groups = {}
    for i, prompt in enumerate(given["prompts"]):
        groups.setdefault(prompt, []).append(i)
    for prompt, rows in groups.items():
        group = core.Group(
            prompt=prompt,
            tokens=(("x",),) * len(rows),
            rewards=tuple(given["rewards"][i] for i in rows),
            logp=((-1.0,),) * len(rows),
        )
        found[rows] = group.advantages(AdvantageSpec(eps=given["eps"])).advantages
        assert group.kind != "mixed"
    assert found.tolist() == expected["advantages"]
    wrong = core.group_advantages(np.array(given["rewards"], dtype=float).reshape(-1, given["group_size"]))
    np.testing.assert_allclose(wrong.advantages.ravel(), expected["wrong_by_reshape"], **ROUNDED)


@checks("B15")
def spread_between_prompts(given, expected):
    result = core.reward_statistics(given["groups"])
    np.testing.assert_allclose(result["reward"], expected["mean"], **ROUNDED)
    np.testing.assert_allclose(result["reward_std"], expected["pooled_std"], **ROUNDED)
    assert result["reward_std_within"] == expected["mean_within_group_std"]
    assert result["frac_reward_zero_std"] == expected["frac_reward_zero_std"]
    assert not core.group_advantages(np.array(given["groups"], dtype=float)).advantages.any()


@checks("B17")
def loss_zero_is_not_gradient_zero(given, expected):
    import torch

    mask = ragged(given["lengths"])
    # k3 = expm1(d) - d = mean_kl solved for d by Newton's method
    d = math.sqrt(2 * given["mean_kl"])
    for _ in range(20):
        d -= (math.expm1(d) - d - given["mean_kl"]) / math.expm1(d)
    data = batch(given["ratio"], given["advantages"], mask, ref_logp=np.full(mask.shape, -1.0 + d))
    objectives = {
        "loss_grpo_seq_mean": Objective(),
        "loss_bnpo_token_mean": Objective(aggregation="token_mean"),
        "loss_dr_grpo": Objective(aggregation="constant", constant=given["max_completion_length"]),
        "with_kl_grpo": Objective(beta=given["beta"]),
    }
    tensors = {k: torch.tensor(getattr(data, k)) for k in ("old_logp", "ref_logp", "mask", "advantages")}
    for name, objective in objectives.items():
        np.testing.assert_allclose(core.loss_terms(data, objective).loss, expected[name], atol=1e-12)
        slope = torch_gradient(lambda x, o=objective: core.loss_terms(GroupBatch(logp=x, **tensors), o).loss, data.logp)
        assert (np.abs(slope[mask]) > 0).all() is not expected["gradient_is_zero"]


@checks("B19")
def accumulation_divides_once(given, expected):
    parts, total = given["micro_token_loss_sums"], 0.0
    for loss_sum in parts:
        # a micro-batch of ten tokens whose summed loss is `loss_sum`: advantage -loss_sum / 10 at ratio 1
        data = batch(1.0, [-loss_sum / 10], np.ones((1, 10)))
        data = GroupBatch(
            **{
                **vars(data),
                "accounting": Accounting(
                    tokens=given["total_tokens"],
                    micro_batches=given["grad_accum"],
                    generation_steps=given["grad_accum"],
                ),
            }
        )
        total += float(core.loss_terms(data, Objective(aggregation="token_mean", scope="global")).loss)
    np.testing.assert_allclose(total, expected["loss"], **ROUNDED)


@checks("B21")
def everything_masked(given, expected):
    mask = np.array(given["mask"], dtype=bool)
    data = batch(1.0, [1.0, 1.0], mask, ref_logp=np.full(mask.shape, -2.0))
    for aggregation in ("sequence_mean", "token_mean", "constant"):
        objective = Objective(beta=0.1, aggregation=aggregation, constant=3)
        terms = core.loss_terms(data, objective)
        assert float(terms.loss) == expected["loss"]
        assert core.batch_statistics(data, terms, objective)["kl"] == expected["kl_metric"]
    weights = core.token_weights(mask, mode="token_mean")
    assert float(core.weighted_sum(np.array(given["token_loss"], dtype=float), weights)) == expected["loss"]


@checks("B23")
def the_numerator_is_masked_too(given, expected):
    weights = core.token_weights(np.array(given["mask"], dtype=bool), mode="token_mean")
    assert float(core.weighted_sum(np.array(given["loss"]), weights)) == expected["loss"]


@checks("B25")
def padding_is_not_completion(given, expected):
    objective = Objective(aggregation=given["loss_type"])
    right = batch(given["ratio"], given["advantages"], ragged(given["true_lengths"], given["padded_width"]))
    wrong = batch(given["ratio"], given["advantages"], np.ones((2, given["padded_width"])))
    assert float(core.loss_terms(right, objective).loss) == pytest.approx(expected["loss"])
    assert float(core.loss_terms(wrong, objective).loss) == pytest.approx(expected["wrong"])
    statistics = core.length_statistics(given["true_lengths"], [False, False])
    assert statistics["completions/mean_length"] == expected["mean_length"]


@checks("B27")
def ratio_one_is_no_bug(given, expected):
    import torch

    logp, old = np.array([given["logp_new"]]), np.array([given["logp_old"]])
    data = GroupBatch(
        logp=logp, old_logp=old, ref_logp=None, mask=np.ones_like(logp, dtype=bool), advantages=np.array([3.0])
    )
    terms = core.loss_terms(data, Objective(aggregation="token_sum"))
    assert terms.ratio.tolist() == [expected["ratio"]]
    statistics = core.batch_statistics(data, terms, Objective())
    assert statistics["clip_ratio/region_mean"] == expected["clip_fraction"]
    rest = {k: torch.tensor(getattr(data, k)) for k in ("old_logp", "mask", "advantages")}
    slope = torch_gradient(
        lambda x: core.loss_terms(GroupBatch(logp=x, ref_logp=None, **rest), Objective(aggregation="token_sum")).loss,
        logp,
    )
    assert slope.tolist() == [[-3.0, -3.0]]  # -A for each token


@checks("B29")
def token_product_and_geometric_mean(given, expected):
    clip = {"epsilon_low": given["eps"], "epsilon_high": given["eps"]}
    data = batch(np.array([given["token_ratios"]]), [given["advantage"]], np.ones((1, 2)))
    token = core.loss_terms(data, Objective(**clip))
    sequence = core.loss_terms(data, Objective(ratio_level="sequence", **clip))
    np.testing.assert_allclose(-token.loss, 0.5 * (1.2 + 0.5), rtol=1e-12)
    np.testing.assert_allclose(-token.loss, expected["token_level_surrogate_mean"], **ROUNDED)
    np.testing.assert_allclose(-sequence.loss, expected["sequence_level_surrogate"], **ROUNDED)
    second = given["second"]
    logp = np.full((1, second["tokens"]), second["log_ratio_each"])
    mask = np.ones_like(logp, dtype=bool)
    for case, prefix in (
        ((np.log([given["token_ratios"]]), np.ones((1, 2), dtype=bool)), ""),
        ((logp, mask), "second_"),
    ):
        for level, name in (("trajectory", "product"), ("sequence", "geometric_mean")):
            ratio = core.importance_ratio(case[0], 0 * case[0], case[1], level=level)
            np.testing.assert_allclose(ratio, [[expected[prefix + name]]], **ROUNDED)


@checks("B31")
def diagnose_before_truncation(given, expected):
    from grpo_core.masks import rollout_weights

    raw = np.array([given["raw_weights"]])
    mask = np.ones_like(raw, dtype=bool)
    means = {
        "raw_mean": rollout_weights(np.log(raw), 0 * raw, mask),
        "after_truncation": rollout_weights(np.log(raw), 0 * raw, mask, mode="truncate", high=given["cap"]),
        "after_outlier_zeroing": rollout_weights(np.log(raw), 0 * raw, mask, mode="mask", high=given["cap"]),
    }
    for name, weights in means.items():
        np.testing.assert_allclose(weights.mean(), expected[name], **ROUNDED)


@checks("B33")
def top_p_is_not_policy_drift(given, expected):
    kept = np.array(expected["rollout_probs"])
    sampled = kept > 0
    logp = np.log(np.array(given["probs"])[sampled])[None]
    old = np.log(kept[sampled])[None]
    ratio = core.importance_ratio(logp, old, np.ones_like(logp, dtype=bool))
    np.testing.assert_allclose(ratio, [[expected["token_ratio_train_over_rollout"]] * sampled.sum()], **ROUNDED)
    many = np.full((1, given["tokens"]), logp[0, 0]), np.full((1, given["tokens"]), old[0, 0])
    product = core.importance_ratio(*many, np.ones((1, given["tokens"]), dtype=bool), level="trajectory")
    np.testing.assert_allclose(product, [[expected["sequence_ratio_100_tokens"]]], rtol=1e-9)


@checks("B35")
def k3_overflows_and_says_so(given, expected):
    d = np.array(given["log_ref_minus_log_policy"])
    zero = np.zeros(3, dtype=np.float32)
    k3 = core.kl_estimate(zero, d.astype(np.float32))
    assert k3[0] == float(expected["k3_float32"][0])
    np.testing.assert_allclose(k3[1:], expected["k3_float32"][1:], rtol=1e-6)
    np.testing.assert_allclose(core.kl_estimate(np.zeros(3), d, estimator="k1"), expected["k1"], rtol=1e-12)
    np.testing.assert_allclose(core.kl_estimate(np.zeros(3), d, estimator="k2"), expected["k2"], rtol=1e-12)


@checks("B37")
def one_token_is_an_estimate(given, expected):
    p, q = np.array(given["policy"]), np.array(given["reference"])
    k1, k3 = (core.kl_estimate(np.log(p), np.log(q), estimator=name) for name in ("k1", "k3"))
    np.testing.assert_allclose(k3, expected["k3_per_token"], **ROUNDED)
    np.testing.assert_allclose(k1, expected["k1_per_token"], **ROUNDED)
    for mean in (p @ k1, p @ k3, core.categorical_kl(p, q)):
        np.testing.assert_allclose(mean, expected["exact_kl"], **ROUNDED)


@checks("B39")
def ranks_are_pooled(given, expected):
    hits = np.array([float(rank["hits"]) for rank in given["ranks"]])
    tokens = np.array([float(rank["tokens"]) for rank in given["ranks"]])
    assert float(core.pooled_mean(hits, tokens)) == expected["pooled"]
    assert float(np.mean(hits / tokens)) == expected["wrong"]


@checks("B41")
def micro_batch_losses_are_summed_not_averaged(given, expected):
    """Each micro-batch's loss already holds its share of the step: the step's loss is their sum."""
    count = len(given["micro_losses"])
    shares = []
    for loss in given["micro_losses"]:
        data = batch(1.0, [-loss], np.ones((1, 4)), accounting=Accounting(micro_batches=count))
        shares.append(float(core.loss_terms(data, Objective()).loss))
    np.testing.assert_allclose(sum(shares), expected["mean"], **ROUNDED)
    np.testing.assert_allclose(np.mean(shares), expected["wrong_logged"], **ROUNDED)


@checks("B43")
def pass_at_k_without_replacement(given, expected):
    for k, value, bootstrap in zip(given["k"], expected["pass_at_k"], expected["bootstrap_best_at_k"], strict=True):
        np.testing.assert_allclose(core.pass_at_k(given["n"], given["c"], k=k), value, **ROUNDED)
        np.testing.assert_allclose(core.best_of_k_bootstrap(given["n"], given["c"], k=k), bootstrap, **ROUNDED)


@checks("B45")
def summed_or_normalised_first(given, expected):
    for name in ("A", "B"):
        rewards = np.array(given[f"group_{name}"], dtype=float)
        summed = core.group_advantages(rewards.sum(axis=1), eps=given["eps"]).advantages
        np.testing.assert_allclose(summed, expected["sum_then_normalise"][name], **ROUNDED)
        parts = core.group_advantages(rewards.T, eps=given["eps"]).advantages.sum(axis=0)
        by_name = core.multi_reward_advantages(rewards[None], AdvantageSpec(eps=given["eps"])).advantages[0]
        np.testing.assert_allclose(by_name, expected["sum_then_normalise"][name], **ROUNDED)
        np.testing.assert_allclose(parts, expected["normalise_then_sum"][name], **ROUNDED)


@checks("B47")
def three_baselines(given, expected):
    k, right = given["k"], given["correct"]
    rewards = [1.0] * right + [0.0] * (k - right)
    specs = {
        "grpo": AdvantageSpec(eps=given["eps"]),
        "centred": AdvantageSpec(scale="none"),
        "rloo": AdvantageSpec(estimator="leave_one_out"),
    }
    for name, spec in specs.items():
        result = core.compute_advantages(rewards, spec).advantages
        np.testing.assert_allclose([result[0], result[-1]], expected[name], **ROUNDED)
        assert result.sum() == pytest.approx(0.0, abs=1e-12)
