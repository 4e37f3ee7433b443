import numpy as np
import pytest

from grpo_core import categorical_kl, kl_estimate
from grpo_core.kl_gradients import (
    WEIGHTINGS,
    centred,
    estimator_moments,
    expected_kl,
    kl_descent,
    kl_gradient,
    ratio_terms,
    reverse_kl_gradient,
)
from tests.support import to_numpy, torch_gradient

BEHAVIOUR, CURRENT, REFERENCE = [0.4, 0.4, 0.2], [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
FORWARD = [0.32070175615595425, -0.08246616586867396, -0.2382355902872803]  # p (log(p/q) - KL), KL = 0.3 ln 2.5
EXACT = 0.3 * np.log(2.5)


class TestTrueGradients:
    def test_case_kl_gradient_trap(self, backend):
        current, reference = backend.array(CURRENT), backend.array(REFERENCE)
        backend.check(kl_gradient(current, reference), FORWARD)
        backend.check(reverse_kl_gradient(current, reference), [0.3, 0.0, -0.3])

    def test_against_autograd(self):
        import torch

        logits, reference = np.array([0.3, -1.0, 0.8, 0.1]), torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
        current = torch.tensor(logits).softmax(-1)
        forward = torch_gradient(lambda x: categorical_kl(x.softmax(-1), reference), logits)
        backward = torch_gradient(lambda x: categorical_kl(reference, x.softmax(-1)), logits)
        np.testing.assert_allclose(to_numpy(kl_gradient(current, reference)), forward, rtol=1e-12)
        np.testing.assert_allclose(to_numpy(reverse_kl_gradient(current, reference)), backward, rtol=1e-12)


class TestExpectedKl:
    @pytest.mark.parametrize(
        ("estimator", "gradient"), [("k1", [0, 0, 0]), ("k2", FORWARD), ("k3", [0.3, 0.0, -0.3]), ("k3+", FORWARD)]
    )
    def test_frozen_samples_follow_the_other_kl_with_k3(self, backend, estimator, gradient):
        result = expected_kl(backend.array(CURRENT), backend.array(REFERENCE), estimator=estimator)
        backend.check(result.gradient, gradient)

    def test_case_kl_five(self):
        current, reference = [0.4, 0.3, 0.15, 0.1, 0.05], [0.3, 0.3, 0.2, 0.15, 0.05]
        values = {name: float(expected_kl(current, reference, estimator=name).value) for name in ("k1", "k2", "k3")}
        assert values["k1"] == pytest.approx(0.0313740073021288, rel=1e-12)
        assert values["k3"] == pytest.approx(0.0313740073021288, rel=1e-12)
        assert values["k2"] == pytest.approx(0.030979365767449998, rel=1e-12)

    def test_spread(self):
        # two tokens of probability 1/2 with k1 = +-x around the mean: std by hand
        p, q = np.array([0.5, 0.5]), np.array([0.25, 0.75])
        k1 = np.log(p / q)
        result = expected_kl(p, q, estimator="k1")
        assert float(result.std) == pytest.approx(abs(k1[0] - k1[1]) / 2, rel=1e-12)
        assert float(expected_kl(p, q, estimator="k3").std) < float(result.std)

    def test_case_kl_off_policy(self, backend):
        arrays = [backend.array(x) for x in (CURRENT, REFERENCE, BEHAVIOUR)]
        backend.check(expected_kl(*arrays).value, 0.243258146374831)
        backend.check(expected_kl(*arrays, weighting="full").value, EXACT)
        backend.check(expected_kl(*arrays, weighting="detached").value, EXACT)
        backend.check(expected_kl(*arrays, weighting="full").gradient, FORWARD)
        backend.check(expected_kl(*arrays, weighting="detached").gradient, [0.3, 0.0, -0.3])
        clipped = expected_kl(*arrays, weighting="clipped", cap=1.1)
        assert abs(float(clipped.value) - EXACT) > 1e-3
        assert np.abs(to_numpy(clipped.gradient) - FORWARD).max() > 0.01
        backend.check(expected_kl(*arrays, weighting="clipped", cap=1.3).gradient, FORWARD)  # no ratio above 1.25

    @pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "abs", "k1+"])
    @pytest.mark.parametrize("weighting", WEIGHTINGS)
    def test_gradient_against_autograd(self, estimator, weighting):
        import torch

        reference = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
        behaviour = torch.tensor([0.3, 0.4, 0.2, 0.1], dtype=torch.float64)

        def frozen_samples(logits):
            logp = logits.log_softmax(-1)
            ratio = (logp - behaviour.log()).exp()
            weight = {
                "none": ratio * 0 + 1,
                "full": ratio,
                "detached": ratio.detach(),
                "clipped": ratio.clamp(max=1.2),
            }[weighting]
            return (behaviour * weight * kl_estimate(logp, reference.log(), estimator=estimator)).sum()

        logits = np.array([0.3, -1.0, 0.8, 0.1])
        current = torch.tensor(logits).softmax(-1)
        result = expected_kl(current, reference, behaviour, estimator=estimator, weighting=weighting, cap=1.2)
        np.testing.assert_allclose(
            to_numpy(result.gradient), torch_gradient(frozen_samples, logits), rtol=1e-11, atol=1e-15
        )
        assert float(result.value) == pytest.approx(float(frozen_samples(torch.tensor(logits))), rel=1e-12)

    def test_rows(self):
        rows = expected_kl(np.array([CURRENT, REFERENCE]), np.array([REFERENCE, CURRENT]))
        np.testing.assert_allclose(rows.gradient[0], expected_kl(CURRENT, REFERENCE).gradient, rtol=1e-14)
        np.testing.assert_allclose(rows.value, [EXACT, EXACT], rtol=1e-12)

    @pytest.mark.parametrize(
        ("call", "says"),
        [
            (lambda: expected_kl([1.0, 0.0], [0.5, 0.5]), "current must give every token a positive probability"),
            (lambda: kl_gradient([0.5, 0.5], [1.0, 0.0]), "reference must give every token a positive"),
            (lambda: reverse_kl_gradient([0.5, 0.4], [0.5, 0.5]), "current must be non-negative probabilities"),
            (lambda: reverse_kl_gradient([0.5, 0.5], [1.0]), r"reference must have the shape of current, \(2,\)"),
            (lambda: expected_kl(CURRENT, REFERENCE, [1.0]), r"behaviour must have the shape of current, \(3,\)"),
            (lambda: expected_kl(CURRENT, REFERENCE, estimator="k4"), "estimator must be one of"),
            (lambda: expected_kl(CURRENT, REFERENCE, weighting="half"), "weighting must be one of 'none', 'full'"),
            (lambda: expected_kl(CURRENT, REFERENCE, cap=0), "cap must be finite and above 0"),
        ],
    )
    def test_bad_input_is_named(self, call, says):
        with pytest.raises(ValueError, match=says):
            call()


class TestCentred:
    def test_is_the_policy_gradient(self, backend):
        import torch

        policy, rewards = backend.array(CURRENT), backend.array([1.0, -2.0, 0.5])
        backend.check(centred(policy, rewards), [0.5 * 1.0, 0.3 * -2.0, 0.2 * 0.5])  # E[r] = 0
        by_hand = torch_gradient(
            lambda x: (x.softmax(-1) * torch.tensor([1.0, 7.0, 0.5], dtype=torch.float64)).sum(), np.log(CURRENT)
        )
        np.testing.assert_allclose(centred(np.array(CURRENT), np.array([1.0, 7.0, 0.5])), by_hand, rtol=1e-12)


class TestDescent:
    @pytest.mark.parametrize("reverse", [False, True])
    def test_steps_are_autograds_and_end_at_the_reference(self, backend, reverse):
        import torch

        path = kl_descent(backend.array(CURRENT), backend.array(REFERENCE), reverse=reverse, learning_rate=0.5, steps=3)
        logits, q = np.log(CURRENT), torch.tensor(REFERENCE, dtype=torch.float64)
        for row in to_numpy(path):
            np.testing.assert_allclose(row, np.exp(logits) / np.exp(logits).sum(), rtol=max(backend.rtol, 1e-12))
            divergence = (lambda p: categorical_kl(q, p)) if reverse else (lambda p: categorical_kl(p, q))
            logits = logits - 0.5 * torch_gradient(lambda x, f=divergence: f(x.softmax(-1)), logits)
        last = kl_descent(np.array(CURRENT), np.array(REFERENCE), reverse=reverse, steps=200)[-1]
        np.testing.assert_allclose(last, REFERENCE, atol=1e-9)

    def test_the_two_ways_differ_and_both_go_down(self):
        rows = np.array([CURRENT, [0.98, 0.01, 0.01]]), np.array([REFERENCE, [0.01, 0.01, 0.98]])
        for reverse in (False, True):
            path = kl_descent(*rows, reverse=reverse, steps=40)
            assert path.shape == (41, 2, 3)
            pair = (np.broadcast_to(rows[1], path.shape), path)
            assert np.all(np.diff(categorical_kl(*(pair if reverse else pair[::-1])), axis=0) < 0)
        first, second = (kl_descent(*rows, reverse=reverse, steps=5)[-1] for reverse in (False, True))
        assert np.abs(first - second).max() > 0.01

    @pytest.mark.parametrize(
        ("call", "says"),
        [
            (lambda: kl_descent([1.0, 0.0], [0.5, 0.5]), "current must give every token a positive probability"),
            (lambda: kl_descent(CURRENT, REFERENCE, learning_rate=0), "learning_rate must be finite and above 0"),
            (lambda: kl_descent(CURRENT, REFERENCE, steps=-1), "steps must be a whole number of at least 0"),
        ],
    )
    def test_bad_input_is_named(self, call, says):
        with pytest.raises(ValueError, match=says):
            call()


class TestMoments:
    @pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
    def test_agree_with_the_expectation_over_positive_distributions(self, backend, estimator):
        current, reference = backend.array(CURRENT), backend.array(REFERENCE)
        moments = estimator_moments(current, reference, estimator=estimator)
        whole = expected_kl(np.array(CURRENT), np.array(REFERENCE), estimator=estimator)
        backend.check(moments.mean, whole.value)
        backend.check(moments.std, whole.std)
        backend.check(moments.terms, np.array(CURRENT) * to_numpy(moments.estimates))

    def test_the_mean_and_spread_of_a_large_sample(self):
        rng = np.random.default_rng(0)
        drawn = rng.choice(3, size=200_000, p=CURRENT)
        for estimator in ("k1", "k2", "k3"):
            moments = estimator_moments(CURRENT, REFERENCE, estimator=estimator)
            sample = np.asarray(moments.estimates)[drawn]
            assert sample.mean() == pytest.approx(float(moments.mean), abs=5 * float(moments.std) / np.sqrt(drawn.size))
            assert sample.std() == pytest.approx(float(moments.std), rel=0.01)

    def test_case_kl_five_spreads(self):
        p, q = [0.4, 0.3, 0.15, 0.1, 0.05], [0.3, 0.3, 0.2, 0.15, 0.05]
        k1, k3 = (float(estimator_moments(p, q, estimator=name).std) for name in ("k1", "k3"))
        assert k3 < 0.15 * k1

    def test_an_event_never_drawn_has_no_part(self):
        moments = estimator_moments([0.6, 0.4, 0.0], [0.4, 0.3, 0.3], estimator="k3")
        assert moments.estimates[2] == moments.terms[2] == 0.0
        expected = 0.4 - 0.6 - 0.6 * np.log(0.4 / 0.6) + 0.3 - 0.4 - 0.4 * np.log(0.3 / 0.4)
        assert float(moments.mean) == pytest.approx(expected, rel=1e-12)
        assert float(ratio_terms([0.6, 0.4, 0.0], [0.4, 0.3, 0.3]).sum()) == pytest.approx(0.7)

    @pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
    def test_an_event_that_the_reference_rules_out_is_infinite(self, estimator):
        moments = estimator_moments([0.6, 0.4], [1.0, 0.0], estimator=estimator)
        assert np.isinf(moments.estimates[1])
        assert np.isfinite(moments.estimates[0])
        assert float(moments.mean) == float(moments.std) == np.inf

    def test_the_three_sums_of_k3(self, backend):
        p, q = backend.array(CURRENT), backend.array(REFERENCE)
        one = ratio_terms(p, q)
        backend.check(one, REFERENCE)
        k1, k3 = (estimator_moments(p, q, estimator=name) for name in ("k1", "k3"))
        backend.check(k3.terms, to_numpy(one) - CURRENT + to_numpy(k1.terms))
        backend.check(k1.mean, EXACT)
        backend.check(k3.mean, EXACT)
        assert np.all(to_numpy(k3.terms) >= 0)

    def test_rows_keep_their_own_infinity(self):
        both = estimator_moments([[0.6, 0.4], [0.5, 0.5]], [[1.0, 0.0], [0.5, 0.5]])
        assert np.isinf(both.mean[0])
        assert both.mean[1] == both.std[1] == 0.0

    def test_bad_input_is_named(self):
        with pytest.raises(ValueError, match="reference must have the shape of current"):
            estimator_moments([0.5, 0.5], [1.0])
        with pytest.raises(ValueError, match="current must be non-negative probabilities"):
            ratio_terms([0.5, 0.4], [0.5, 0.5])
        with pytest.raises(ValueError, match="estimator must be one of"):
            estimator_moments([0.5, 0.5], [0.5, 0.5], estimator="k4")
