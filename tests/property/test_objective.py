"""What holds for the loss of any batch: padding, policy gradient, saturation, reductions, micro-batches."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_core import (
    RECIPES,
    SURROGATES,
    Accounting,
    GroupBatch,
    Objective,
    batch_statistics,
    importance_ratio,
    kl_estimate,
    loss_terms,
    token_weights,
)
from tests.property.strategies import batches

AGGREGATIONS = ("sequence_mean", "token_mean", "constant", "sequence_sum", "token_sum")
LEVELS = ("token", "sequence", "trajectory")
objectives = st.builds(
    Objective,
    surrogate=st.sampled_from(sorted(SURROGATES)),
    ratio_level=st.sampled_from(LEVELS),
    aggregation=st.sampled_from(AGGREGATIONS),
    constant=st.just(9.0),
    beta=st.sampled_from([0.0, 0.04]),
    kl_estimator=st.sampled_from(["k1", "k2", "k3", "abs", "k3+"]),
    kl_ratio_weighted=st.booleans(),
    delta=st.sampled_from([None, 1.1, 3.0]),
    epsilon_high=st.sampled_from([0.0, 0.2, 5.0]),
)


def evaluate(data, objective, **changes):
    """Return loss and gradient (NumPy) of a batch by torch."""
    import torch

    parts = {k: torch.tensor(v) for k, v in {**data, **changes}.items() if isinstance(v, np.ndarray)}
    parts |= {k: v for k, v in changes.items() if not isinstance(v, np.ndarray)}
    logp = parts.pop("logp").requires_grad_()
    terms = loss_terms(GroupBatch(logp=logp, **parts), objective)
    (slope,) = torch.autograd.grad(terms.loss, logp, allow_unused=True)
    return float(terms.loss.detach()), np.zeros(logp.shape) if slope is None else slope.numpy(), terms


@given(batches(), objectives)
def test_numpy_and_torch_agree(data, objective):
    value, _, _ = evaluate(data, objective)
    assert float(loss_terms(GroupBatch(**data), objective).loss) == pytest.approx(value, rel=1e-9, abs=1e-12)


@given(batches(), objectives, st.sampled_from([math.inf, -math.inf, math.nan, 1e300, 0.0]))
def test_padding_never_matters(data, objective, junk):
    dirty = {
        name: np.where(data["mask"], data[name], junk)
        for name in ("logp", "old_logp", "ref_logp", "entropy", "uniform")
    }
    value, slope, _ = evaluate(data, objective)
    other, other_slope, _ = evaluate(data, objective, **dirty)
    assert value == other
    np.testing.assert_array_equal(slope, other_slope)
    assert (slope[~data["mask"]] == 0).all()


@given(batches(), objectives)
def test_more_padding_changes_nothing(data, objective):
    wider = {
        name: np.pad(value, ((0, 0), (0, 3)), constant_values=False if name == "mask" else -7.0)
        for name, value in data.items()
        if value.ndim == 2
    }
    value, slope, _ = evaluate(data, objective)
    other, other_slope, _ = evaluate({**data, **wider}, objective)
    assert other == pytest.approx(value, rel=1e-12, abs=1e-14)
    np.testing.assert_allclose(other_slope[:, : slope.shape[1]], slope, rtol=1e-12, atol=1e-15)
    assert (other_slope[:, slope.shape[1] :] == 0).all()


RATIO_ONE = ("clip", "unclipped", "cispo", "sapo", "vespo", "dppo_tv", "dppo_kl", "policy_gradient")


@given(batches(), st.sampled_from(RATIO_ONE), st.sampled_from(AGGREGATIONS))
def test_ratio_one_gives_the_plain_policy_gradient(data, surrogate, aggregation):
    objective = Objective(surrogate=surrogate, aggregation=aggregation, constant=9.0)
    _, slope, terms = evaluate(data, objective, old_logp=data["logp"])
    expected = -terms.weights.numpy() * data["advantages"][:, None]
    np.testing.assert_allclose(slope, expected, rtol=1e-12, atol=1e-15)
    assert (terms.ratio.detach().numpy() == 1).all()


@given(batches(), st.sampled_from(["sequence", "trajectory"]))
def test_ratio_one_at_other_levels(data, level):
    """The sequence ratio's gradient is a share of 1 / length for each token; the trajectory's is whole for each."""
    objective = Objective(ratio_level=level, aggregation="sequence_mean")
    _, slope, terms = evaluate(data, objective, old_logp=data["logp"])
    lengths = np.maximum(data["mask"].sum(axis=1, keepdims=True), 1)
    expected = -terms.weights.numpy() * data["advantages"][:, None] * (lengths if level == "trajectory" else 1)
    np.testing.assert_allclose(slope, expected, rtol=1e-9, atol=1e-14)


@given(batches(), objectives)
def test_a_saturated_term_has_exactly_zero_gradient(data, objective):
    """Without a KL term; at sequence level a completion is saturated as a whole."""
    _, slope, terms = evaluate(data, objective.replace(beta=0.0))
    assert (slope[terms.saturated.numpy()] == 0).all()


@given(batches(), st.sampled_from(["clip", "gmpo"]), st.sampled_from([None, 1.1, 3.0]))
def test_an_open_term_has_a_gradient(data, surrogate, delta):
    objective = Objective(surrogate=surrogate, delta=delta)
    _, slope, terms = evaluate(data, objective)
    openly = data["mask"] & ~terms.saturated.numpy() & (data["advantages"][:, None] != 0)
    assert (slope[openly] != 0).all()


@given(batches(equal_lengths=True), objectives)
def test_equal_lengths_make_sequence_and_token_means_equal(data, objective):
    one = evaluate(data, objective.replace(aggregation="sequence_mean"))
    other = evaluate(data, objective.replace(aggregation="token_mean"))
    constant = evaluate(data, objective.replace(aggregation="constant", constant=float(data["mask"].shape[1])))
    for value, slope, _ in (other, constant):
        assert value == pytest.approx(one[0], rel=1e-9, abs=1e-12)
        np.testing.assert_allclose(slope, one[1], rtol=1e-9, atol=1e-12)


SPLIT = ("clip", "unclipped", "cispo", "sapo", "vespo", "gmpo", "dppo_tv", "dppo_kl", "dro", "policy_gradient")


@given(batches(max_rows=6), objectives, st.sampled_from(SPLIT), st.randoms(use_true_random=False))
def test_micro_batches_change_nothing(data, objective, surrogate, random):
    """Any split, also an uneven one: tokens and completions of the whole step are known to each part."""
    objective = objective.replace(surrogate=surrogate, scope="global")
    rows = data["mask"].shape[0]
    cuts = sorted({0, rows, *(random.randrange(rows + 1) for _ in range(3))})
    parts = [slice(a, b) for a, b in itertools.pairwise(cuts)]
    accounting = Accounting(
        tokens=int(data["mask"].sum()), sequences=rows, micro_batches=len(parts), generation_steps=len(parts)
    )
    value, slope, _ = evaluate(data, objective)
    results = [evaluate({k: v[part] for k, v in data.items()}, objective, accounting=accounting) for part in parts]
    assert sum(r[0] for r in results) == pytest.approx(value, rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(np.concatenate([r[1] for r in results]), slope, rtol=1e-9, atol=1e-12)


@given(batches(max_rows=6), st.randoms(use_true_random=False))
def test_equal_micro_batches_of_a_sequence_mean_are_averaged(data, random):
    doubled = {k: np.concatenate([v, v[::-1]]) for k, v in data.items()}
    value, _, _ = evaluate(doubled, Objective())
    halves = [{k: v[: len(v) // 2] for k, v in doubled.items()}, {k: v[len(v) // 2 :] for k, v in doubled.items()}]
    parts = [evaluate(half, Objective(), accounting=Accounting(micro_batches=2))[0] for half in halves]
    assert sum(parts) == pytest.approx(value, rel=1e-9, abs=1e-12)


@given(batches(), objectives, st.randoms(use_true_random=False))
def test_the_order_of_completions_does_not_matter(data, objective, random):
    order = list(range(data["mask"].shape[0]))
    random.shuffle(order)
    value, slope, _ = evaluate(data, objective)
    other, other_slope, _ = evaluate({k: v[order] for k, v in data.items()}, objective)
    assert other == pytest.approx(value, rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(other_slope, slope[order], rtol=1e-9, atol=1e-12)


@given(batches(), objectives)
def test_contributions_sum_to_the_loss_and_parts_to_the_whole(data, objective):
    terms = loss_terms(GroupBatch(**data), objective)
    assert float(np.sum(terms.contribution)) == pytest.approx(float(terms.loss), rel=1e-9, abs=1e-12)
    whole = float(terms.policy_loss) + objective.beta * float(terms.kl_loss)
    assert whole == pytest.approx(float(terms.loss), rel=1e-9, abs=1e-12)


@given(batches(), objectives)
def test_the_clipped_objective_is_a_lower_bound(data, objective):
    clip = loss_terms(GroupBatch(**data), objective.replace(surrogate="clip", delta=None))
    free = loss_terms(GroupBatch(**data), objective.replace(surrogate="unclipped"))
    assert (clip.objective <= free.objective + 1e-12).all()


@given(batches(), st.sampled_from(sorted(RECIPES)))
def test_every_recipe_gives_a_finite_loss_and_statistics(data, name):
    objective = RECIPES[name].with_constant(12)
    batch = GroupBatch(**data)
    terms = loss_terms(batch, objective)
    assert np.isfinite(terms.loss)
    statistics = batch_statistics(batch, terms, objective)
    assert all(math.isfinite(value) for value in statistics.values())
    for key in ("clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean"):
        assert 0 <= statistics[key] <= 1


@given(batches(), st.sampled_from(AGGREGATIONS))
def test_weights_are_zero_off_the_mask_and_sum_as_they_should(data, mode):
    mask = data["mask"]
    weights = token_weights(mask, mode=mode, constant=9.0)
    assert (weights[~mask] == 0).all()
    assert (weights[mask] > 0).all()
    lengths, rows = mask.sum(axis=1), mask.shape[0]
    totals = {
        "sequence_mean": (lengths > 0).mean(),
        "token_mean": float(lengths.sum() > 0),
        "constant": lengths.sum() / (9.0 * rows),
        "sequence_sum": lengths.sum() / rows,
        "token_sum": lengths.sum(),
    }
    assert weights.sum() == pytest.approx(totals[mode], abs=1e-9)


@given(batches(), st.sampled_from(LEVELS))
def test_ratios_are_positive_and_finite_and_invert(data, level):
    ratio = importance_ratio(data["logp"], data["old_logp"], data["mask"], level=level)
    back = importance_ratio(data["old_logp"], data["logp"], data["mask"], level=level)
    assert np.isfinite(ratio).all()
    assert (ratio > 0).all()
    np.testing.assert_allclose(ratio * back, 1.0, rtol=1e-9)


@given(batches())
def test_the_trajectory_ratio_is_the_product_and_the_sequence_ratio_its_root(data):
    token, sequence, trajectory = (
        importance_ratio(data["logp"], data["old_logp"], data["mask"], level=level) for level in LEVELS
    )
    lengths = np.maximum(data["mask"].sum(axis=1, keepdims=True), 1)
    np.testing.assert_allclose(np.prod(token, axis=1, keepdims=True), trajectory, rtol=1e-9)
    np.testing.assert_allclose(sequence**lengths, trajectory, rtol=1e-9)


@given(batches())
def test_k2_and_k3_are_never_negative_and_all_vanish_at_equality(data):
    for estimator in ("k2", "k3", "abs"):
        assert (kl_estimate(data["logp"], data["ref_logp"], estimator=estimator) >= 0).all()
    for estimator in ("k1", "k2", "k3", "abs"):
        assert (kl_estimate(data["logp"], data["logp"], estimator=estimator) == 0).all()
