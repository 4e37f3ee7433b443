import math

import numpy as np
import pytest

from grpo_core import categorical_kl
from grpo_core.policies import sequence_outcomes, softmax_outcomes, true_gradient
from grpo_core.trust_region import (
    fisher_matrix,
    natural_gradient_step,
    performance_difference,
    softmax_fisher,
    step_kl,
    surrogate_error_bound,
    total_variation,
)
from tests.support import difference_gradient, to_numpy

LOGITS = np.array([0.4, -1.1, 0.9])
VOCABULARY = ["a", "b", "EOS"]


def tree(logits):
    return sequence_outcomes(logits, tokens=VOCABULARY, max_length=3)


class TestBound:
    def test_case_trpo_bound(self):
        assert surrogate_error_bound(0.1, 1.0, horizon=10) == pytest.approx(1.8, rel=1e-14)

    def test_a_bandit_has_no_prefix_to_get_wrong(self):
        assert surrogate_error_bound(1.0, 5.0, horizon=1) == 0.0

    def test_total_variation(self, backend):
        p, q = backend.array([[0.5, 0.5], [1.0, 0.0]]), backend.array([[0.25, 0.75], [0.0, 1.0]])
        backend.check(total_variation(p, q), [0.25, 1.0])

    @pytest.mark.parametrize(
        ("call", "says"),
        [
            (lambda: surrogate_error_bound(1.1, 1.0, horizon=2), "alpha must be between 0 and 1, got 1.1"),
            (lambda: surrogate_error_bound(0.1, -1.0, horizon=2), "a_max must be finite and at least 0"),
            (lambda: surrogate_error_bound(0.1, 1.0, horizon=0), "horizon must be a whole number of at least 1"),
            (lambda: total_variation([1.0], [0.5]), "q must be non-negative probabilities"),
            (lambda: total_variation([1.0], [0.5, 0.5]), "q must have the shape of p"),
        ],
    )
    def test_bad_input_is_named(self, call, says):
        with pytest.raises(ValueError, match=says):
            call()


class TestPerformanceDifference:
    def test_the_identity_is_exact_and_the_surrogate_is_within_the_bound(self):
        rng = np.random.default_rng(11)
        logits, rewards = rng.normal(size=(7, 3)), rng.normal(size=15)
        errors = []
        for size in (0.05, 0.1, 0.8, 3.0):
            new = tree(logits + size * np.random.default_rng(2).normal(size=(7, 3)))
            result = performance_difference(tree(logits), new, rewards)
            assert result.identity == pytest.approx(result.new - result.old, rel=1e-9, abs=1e-13)
            assert 0 < result.error <= result.bound
            errors.append(result.error)
        assert errors[1] / errors[0] == pytest.approx(4.0, rel=0.3)  # second order in the move

    def test_the_surrogate_by_hand(self):
        # One letter, then EOS or a letter. Old: 1/2 everywhere; new: 3/4 for "a" in both prefixes.
        def two_steps(p):
            row = [math.log(p), math.log(1 - p)]
            return sequence_outcomes([row, row], tokens=["a", "EOS"], max_length=2)

        # outcomes: EOS 0, aa 4, aEOS 0.  V(a) = 2, V() = 1.  A: (a) 1, (EOS) -1, (aa) 2, (aEOS) -2.
        result = performance_difference(two_steps(0.5), two_steps(0.75), [0.0, 4.0, 0.0])
        assert (result.old, result.new) == pytest.approx((1.0, 2.25))
        # old prefixes: 3/4 - 1/4, and with probability 1/2 (2 * 3/4 - 2 * 1/4)
        assert result.surrogate == pytest.approx(1.0 + 0.5 + 0.5 * 1.0)
        assert (result.alpha, result.a_max, result.horizon) == pytest.approx((0.25, 2.0, 2))
        assert result.bound == pytest.approx(2 * 2 * 2 * 1 / 16)
        assert result.error == pytest.approx(0.25)

    def test_the_surrogate_has_the_true_gradient_at_the_old_policy(self):
        rng = np.random.default_rng(4)
        logits, rewards = rng.normal(size=(7, 3)), rng.normal(size=15)
        old = tree(logits)
        slope = difference_gradient(lambda x: performance_difference(old, tree(x), rewards).surrogate, logits, 1e-5)
        np.testing.assert_allclose(slope.ravel(), true_gradient(old, rewards), atol=1e-8)

    def test_outcomes_must_agree(self):
        with pytest.raises(ValueError, match="new must list the same outcomes as old"):
            performance_difference(softmax_outcomes([0.0]), softmax_outcomes([0.0, 0.0]), [1.0])


class TestFisher:
    def test_softmax(self, backend):
        p = backend.array([0.2, 0.3, 0.5])
        backend.check(softmax_fisher(p), [[0.16, -0.06, -0.1], [-0.06, 0.21, -0.15], [-0.1, -0.15, 0.25]])

    def test_it_is_the_hessian_of_the_kl(self):
        import torch

        at = torch.tensor(LOGITS)
        old = at.softmax(-1)
        hessian = torch.autograd.functional.hessian(lambda x: categorical_kl(old, x.softmax(-1)), at)
        np.testing.assert_allclose(to_numpy(softmax_fisher(old)), hessian.numpy(), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(fisher_matrix(softmax_outcomes(LOGITS)), hessian.numpy(), rtol=1e-12, atol=1e-15)

    def test_of_a_tree_it_weighs_each_prefix_by_how_often_it_is_reached(self):
        logits = np.random.default_rng(0).normal(size=(3, 3))
        fisher = fisher_matrix(sequence_outcomes(logits, tokens=VOCABULARY, max_length=2))
        rows = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        for state, reached in ((0, 1.0), (1, rows[0, 0]), (2, rows[0, 1])):
            block = fisher[3 * state : 3 * state + 3, 3 * state : 3 * state + 3]
            np.testing.assert_allclose(block, reached * softmax_fisher(rows[state]), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(fisher[:3, 3:], 0.0, atol=1e-15)

    def test_bad_input_is_named(self):
        with pytest.raises(ValueError, match=r"probs must be one distribution of shape \(K,\), got \(1, 1\)"):
            softmax_fisher([[1.0]])


class TestNaturalGradientStep:
    def test_case_trpo_natural(self, backend):
        step = natural_gradient_step(backend.array([1, 2]), backend.array([[2, 0], [0, 0.5]]), delta=0.01)
        # F^-1 g = (1/2, 4), g^T F^-1 g = 8.5
        backend.check(step, np.sqrt(0.02 / 8.5) * np.array([0.5, 4.0]))

    def test_it_uses_up_the_trust_region_and_nothing_else_does_better(self):
        rng = np.random.default_rng(6)
        root = rng.normal(size=(4, 4))
        fisher, gradient = root @ root.T, rng.normal(size=4)
        step = natural_gradient_step(gradient, fisher, delta=0.02)
        assert step @ fisher @ step / 2 == pytest.approx(0.02, rel=1e-9)
        others = rng.normal(size=(200, 4))
        others *= np.sqrt(0.04 / np.einsum("ni,ij,nj->n", others, fisher, others))[:, None]
        assert gradient @ step >= (others @ gradient).max()

    def test_a_softmax_policy_is_singular_and_still_has_a_step(self, backend):
        p, rewards = np.array([0.2, 0.3, 0.5]), np.array([1.0, 0.0, 4.0])
        gradient = p * (rewards - p @ rewards)
        step = to_numpy(natural_gradient_step(backend.array(gradient), softmax_fisher(backend.array(p)), delta=0.01))
        # F^-1 g is the reward itself up to a constant: the natural gradient forgets how rare an action is
        centred = rewards - rewards.mean()
        expected = centred * np.sqrt(0.02 / (gradient @ centred))
        np.testing.assert_allclose(step, expected, rtol=1e-5 if backend.dtype == "float32" else 1e-9, atol=1e-6)

    def test_damping_tends_to_the_plain_gradient(self):
        gradient = np.array([1.0, 2.0])
        step = natural_gradient_step(gradient, [[2.0, 0.0], [0.0, 0.5]], delta=0.01, damping=1e6)
        np.testing.assert_allclose(step / np.linalg.norm(step), gradient / np.sqrt(5), rtol=1e-5)
        np.testing.assert_allclose(
            natural_gradient_step([1.0, 1.0], [[1.0, 0.0], [0.0, 0.0]], delta=0.5, damping=1.0),
            np.array([0.5, 1.0]) / np.sqrt(1.5),
            rtol=1e-12,
        )

    @pytest.mark.parametrize(
        ("gradient", "fisher", "options", "says"),
        [
            ([0.0, 0.0], np.eye(2), {}, "gradient must be finite and not zero"),
            ([math.inf, 0.0], np.eye(2), {}, "gradient must be finite and not zero"),
            ([1.0], np.eye(2), {}, r"fisher must have shape \(D, D\) for a gradient \(D,\), got \(2, 2\) and \(1,\)"),
            ([1.0, 1.0], [[1.0, 0.5], [0.0, 1.0]], {}, "fisher must be finite and symmetric"),
            ([1.0, 1.0], [[1.0, math.nan], [math.nan, 1.0]], {}, "fisher must be finite and symmetric"),
            ([1.0, 1.0], [[1.0, 0.0], [0.0, -1.0]], {}, "fisher must have no negative eigenvalue, got -1"),
            ([1.0, 1.0], [[1.0, 0.0], [0.0, 0.0]], {}, "gradient has a part of size 1 along .* give damping"),
            ([1.0, 1.0], np.zeros((2, 2)), {}, "give damping a positive value"),
            ([1.0, 1.0], np.eye(2), {"delta": 0.0}, "delta must be finite and above 0"),
            ([1.0, 1.0], np.eye(2), {"damping": -1.0}, "damping must be finite and at least 0"),
        ],
    )
    def test_bad_input_is_named(self, gradient, fisher, options, says):
        with pytest.raises(ValueError, match=says):
            natural_gradient_step(gradient, fisher, **{"delta": 0.01, **options})


class TestStepKl:
    def test_the_model_is_the_exact_value_to_second_order(self, backend):
        step = np.array([0.02, -0.01, 0.03])
        result = step_kl(backend.array(LOGITS), backend.array(step))
        p, q = (np.exp(x) / np.exp(x).sum() for x in (LOGITS, LOGITS + step))
        assert float(result.exact) == pytest.approx((p * np.log(p / q)).sum(), rel=5e-3, abs=1e-9)
        assert float(result.quadratic) == pytest.approx((p @ step**2 - (p @ step) ** 2) / 2, rel=5e-3, abs=1e-9)
        assert float(result.exact) == pytest.approx(float(result.quadratic), rel=0.03, abs=1e-7)
        np.testing.assert_allclose(to_numpy(result.old), p, rtol=1e-6)
        np.testing.assert_allclose(to_numpy(result.new), q, rtol=1e-6)

    def test_a_long_step_breaks_the_model(self):
        outcomes = softmax_outcomes(LOGITS)
        gradient = true_gradient(outcomes, [0.0, 1.0, 0.0])
        for delta, near in ((1e-4, True), (1.0, False)):
            result = step_kl(LOGITS, natural_gradient_step(gradient, fisher_matrix(outcomes), delta=delta))
            assert float(result.quadratic) == pytest.approx(delta, rel=1e-8)
            assert (abs(float(result.exact) / delta - 1) < 0.05) == near

    def test_bad_input_is_named(self):
        with pytest.raises(ValueError, match=r"step must have the shape of logits, \(3,\), got \(2,\)"):
            step_kl(LOGITS, [0.0, 1.0])
