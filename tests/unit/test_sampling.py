import itertools
import math

import numpy as np
import pytest

from grpo_core import AdvantageSpec
from grpo_core.policies import gradient_report, softmax_outcomes
from grpo_core.sampling import (
    best_of_k_bootstrap,
    budget_splits,
    dynamic_sampling,
    fill_probability,
    pass_at_k,
    sampling_distribution,
    sampling_mismatch,
)
from tests.support import to_numpy, torch_gradient

LOGP = np.log([0.5, 0.3, 0.15, 0.05])


class TestSamplingDistribution:
    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({}, [0.5, 0.3, 0.15, 0.05]),
            ({"temperature": 0.5}, np.array([25, 9, 2.25, 0.25]) / 36.5),
            ({"top_k": 2}, [0.625, 0.375, 0, 0]),
            ({"top_k": 9}, [0.5, 0.3, 0.15, 0.05]),
            ({"top_p": 0.8}, [0.625, 0.375, 0, 0]),  # case B33: 0.5 + 0.3 reaches 0.8 exactly
            ({"top_p": 0.81}, np.array([0.5, 0.3, 0.15, 0]) / 0.95),
            ({"top_p": 0.1}, [1, 0, 0, 0]),
            ({"top_p": 1.0}, [0.5, 0.3, 0.15, 0.05]),
            ({"top_k": 2, "top_p": 0.6}, [1, 0, 0, 0]),  # 0.625 of what top-k left
            ({"temperature": 1e-300}, [1, 0, 0, 0]),
            ({"top_p": 1e-14}, [1, 0, 0, 0]),  # less than what rounding may be: the likeliest token stays
        ],
    )
    def test_by_hand(self, backend, options, expected):
        backend.check(sampling_distribution(backend.array(LOGP), **options), expected)

    def test_rows_in_any_order(self, backend):
        rows = backend.array([LOGP[[3, 0, 2, 1]], LOGP[[1, 2, 0, 3]]])
        backend.check(sampling_distribution(rows, top_p=0.8), [[0, 0.625, 0, 0.375], [0.375, 0, 0.625, 0]])

    def test_a_set_that_reaches_top_p_up_to_rounding_is_enough(self, backend):
        # the sum of four softmax values of 1/9 is 0.44444444444444436, a little below 4/9
        result = sampling_distribution(backend.array(np.zeros(9)), top_p=4 / 9)
        backend.check(result, [0.25] * 4 + [0] * 5)

    def test_ties(self):
        np.testing.assert_allclose(sampling_distribution([0.0, 1.0, 0.0], top_k=2)[[0, 2]], 1 / (2 + math.e))
        np.testing.assert_allclose(sampling_distribution([0.0, 0.0, 0.0], top_p=0.5), [0.5, 0.5, 0])

    def test_the_gradient_stays_inside_the_kept_tokens(self):
        slope = torch_gradient(lambda x: sampling_distribution(x, temperature=2.0, top_k=2)[0], LOGP)
        q = math.sqrt(0.5) / (math.sqrt(0.5) + math.sqrt(0.3))
        np.testing.assert_allclose(slope, np.array([1, -1, 0, 0]) * q * (1 - q) / 2, atol=1e-14)

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"temperature": 0}, "temperature must be finite and above 0, got 0"),
            ({"top_k": 0}, "top_k must be a whole number of at least 1, got 0"),
            ({"top_p": 0.0}, "top_p must be between 0 and 1, 0 itself excluded"),
            ({"top_p": 1.5}, "top_p must be between 0 and 1"),
        ],
    )
    def test_bad_input_is_named(self, options, says):
        with pytest.raises(ValueError, match=says):
            sampling_distribution(LOGP, **options)


class TestSamplingMismatch:
    def test_case_b33(self, backend):
        mismatch = sampling_mismatch(backend.array(LOGP), top_p=0.8)
        backend.check(mismatch.ratio, [0.8, 0.8, 0, 0])
        backend.check(mismatch.mean_ratio, 0.8)
        assert float(mismatch.sequence_ratio(100)) == pytest.approx(2.037035976e-10, rel=1e-4)

    def test_the_same_distribution_has_ratio_one(self, backend):
        mismatch = sampling_mismatch(backend.array([LOGP]), temperature=0.7, trained_temperature=0.7)
        backend.check(mismatch.ratio, np.ones((1, 4)))
        backend.check(mismatch.sequence_ratio(1000), [1.0])

    def test_a_forgotten_temperature(self):
        mismatch = sampling_mismatch(LOGP, temperature=0.5)
        sampled = np.array([25, 9, 2.25, 0.25]) / 36.5
        np.testing.assert_allclose(mismatch.ratio, np.exp(LOGP) / sampled, rtol=1e-12)
        assert float(mismatch.mean_ratio) == pytest.approx(1.0, rel=1e-12)  # nothing is cut off, so nothing is missing
        assert float(mismatch.mean_log_ratio) == pytest.approx(sampled @ (LOGP - np.log(sampled)), rel=1e-12)
        assert float(mismatch.mean_log_ratio) < 0

    def test_long_sequences_stay_finite(self):
        assert float(sampling_mismatch(LOGP, top_p=0.8).sequence_ratio(10**6)) == pytest.approx(math.exp(-80))


class TestDynamicSampling:
    P = (0.5, 0.9, 0.02)
    G = 4

    def mixed(self):
        return np.array([1 - p**self.G - (1 - p) ** self.G for p in self.P])

    def test_replacing_the_prompt_only_rescales(self):
        result = dynamic_sampling(self.P, group_size=self.G, batch_groups=10)
        mean = self.mixed().mean()
        assert result.draws == pytest.approx(10 / mean, rel=1e-12)
        assert result.draws_std == pytest.approx(math.sqrt(10 * (1 - mean)) / mean, rel=1e-12)
        assert result.completions == pytest.approx(40 / mean, rel=1e-12)
        np.testing.assert_allclose(result.share, self.mixed() / self.mixed().sum(), rtol=1e-12)
        np.testing.assert_allclose(result.factor, 1 / mean, rtol=1e-12)
        assert result.only_rescales

    def test_retrying_the_prompt_reweights(self):
        result = dynamic_sampling(self.P, group_size=self.G, batch_groups=10, rule="retry")
        assert result.draws == pytest.approx(10 * np.mean(1 / self.mixed()), rel=1e-12)
        np.testing.assert_allclose(result.factor, 1 / self.mixed(), rtol=1e-12)
        np.testing.assert_allclose(result.share, 1 / 3, rtol=1e-12)
        assert not result.only_rescales
        # one prompt: both rules wait alike
        one, other = (dynamic_sampling([0.3], group_size=4, batch_groups=5, rule=r) for r in ("retry", "resample"))
        assert (one.draws, one.draws_std) == pytest.approx((other.draws, other.draws_std), rel=1e-12)
        assert one.only_rescales

    def test_the_factors_are_those_of_the_exact_expected_gradients(self):
        """Condition the enumerated estimator on a mixed group: its mean is the whole mean over m_x."""
        for p, m in zip(self.P, self.mixed(), strict=True):
            outcomes = softmax_outcomes(np.log([p, 1 - p]))
            report = gradient_report(outcomes, [1.0, 0.0], AdvantageSpec(), group_size=self.G)
            assert report.signal == pytest.approx(m, rel=1e-11)
        expected, kept = 0.0, 0.0
        for p in self.P:  # two prompts' groups, drawn again until mixed, averaged with equal weight
            for group in itertools.product((1, 0), repeat=self.G):
                chance = math.prod(p if right else 1 - p for right in group) / 3
                pull = np.mean([(r - np.mean(group)) * (r - p) for r in group])  # d log p / d logit is r - p
                expected += chance * pull
                kept += chance * (max(group) != min(group))
        factor = dynamic_sampling(self.P, group_size=self.G, batch_groups=1).factor[0]
        assert expected / kept == pytest.approx(expected * factor, rel=1e-12)

    def test_without_a_filter(self):
        result = dynamic_sampling(self.P, [1, 1, 2], group_size=self.G, batch_groups=6, rule="keep")
        assert (result.draws, result.draws_std, result.completions) == (6.0, 0.0, 24.0)
        np.testing.assert_allclose(result.share, [0.25, 0.25, 0.5])
        np.testing.assert_array_equal(result.factor, 1.0)

    def test_prompts_that_are_never_mixed(self):
        resample = dynamic_sampling([0.5, 1.0], group_size=4, batch_groups=7)
        assert resample.draws == pytest.approx(16.0)
        np.testing.assert_array_equal(resample.share, [1.0, 0.0])
        retry = dynamic_sampling([0.5, 1.0], group_size=4, batch_groups=7, rule="retry")
        assert retry.draws == retry.draws_std == math.inf
        assert dynamic_sampling([0.5, 1.0], [1, 0], group_size=4, batch_groups=7, rule="retry").draws == 8.0
        hopeless = dynamic_sampling([0.0, 1.0], group_size=4, batch_groups=7)
        assert hopeless.draws == math.inf
        np.testing.assert_array_equal(hopeless.share, [0.0, 0.0])
        assert dynamic_sampling([0.5], group_size=1, batch_groups=1).draws == math.inf

    def test_against_a_simulation(self):
        rng = np.random.default_rng(0)
        counts = []
        for _ in range(4000):
            draws = kept = 0
            while kept < 3:
                draws += 1
                successes = rng.binomial(self.G, self.P[rng.integers(3)])
                kept += 0 < successes < self.G
            counts.append(draws)
        result = dynamic_sampling(self.P, group_size=self.G, batch_groups=3)
        assert np.mean(counts) == pytest.approx(result.draws, abs=4 * result.draws_std / math.sqrt(4000))
        assert np.std(counts) == pytest.approx(result.draws_std, rel=0.1)
        rate = self.mixed().mean()
        within = np.mean(np.array(counts) <= 5)
        assert within == pytest.approx(fill_probability(rate, batch_groups=3, draws=5), abs=0.04)

    def test_fill_probability(self):
        assert fill_probability(0.2, batch_groups=1, draws=3) == pytest.approx(1 - 0.8**3, rel=1e-12)
        assert fill_probability(0.3, batch_groups=4, draws=3) == 0.0
        assert fill_probability(0.3, batch_groups=0, draws=0) == 1.0
        assert [fill_probability(p, batch_groups=1, draws=5) for p in (0.0, 1.0)] == [0.0, 1.0]
        assert fill_probability(0.5, batch_groups=5000, draws=10000) == pytest.approx(0.504, abs=1e-3)

    @pytest.mark.parametrize(
        ("call", "says"),
        [
            (lambda: dynamic_sampling([1.2], group_size=2, batch_groups=1), "p must be a probability"),
            (lambda: dynamic_sampling([0.5], group_size=0, batch_groups=1), "group_size must be a whole number"),
            (lambda: dynamic_sampling([0.5], group_size=2, batch_groups=0), "batch_groups must be a whole number"),
            (lambda: dynamic_sampling([0.5], [1, 2], group_size=2, batch_groups=1), "for each of the 1 prompts"),
            (lambda: dynamic_sampling([0.5], [0], group_size=2, batch_groups=1), "not all 0"),
            (
                lambda: dynamic_sampling([0.5], [-1], group_size=2, batch_groups=1),
                "weights must be finite and at least",
            ),
            (lambda: dynamic_sampling([0.5], group_size=2, batch_groups=1, rule="x"), "rule must be one of 'keep'"),
            (lambda: fill_probability(1.5, batch_groups=1, draws=1), "mixed must be between 0 and 1"),
            (lambda: budget_splits([0.5], budget=4, group_sizes=[8]), "must not exceed the budget of 4 completions"),
        ],
    )
    def test_bad_input_is_named(self, call, says):
        with pytest.raises(ValueError, match=says):
            call()


def test_budget_splits():
    few, many = budget_splits([0.2, 0.5], budget=18, group_sizes=[4, 8])
    mixed = (0.5888 + 0.875) / 2
    assert (few.group_size, few.prompts, few.unused, few.self_inclusion) == (4, 4, 2, 0.75)
    assert few.mixed == pytest.approx(mixed, rel=1e-12)
    assert few.mixed_groups == pytest.approx(4 * mixed, rel=1e-12)
    assert few.signal_completions == pytest.approx(16 * mixed, rel=1e-12)
    assert few.no_signal == pytest.approx((1 - mixed) ** 4, rel=1e-12)
    assert many.mixed > few.mixed
    assert many.mixed_groups < few.mixed_groups


class TestPassAtK:
    def test_case_b43(self):
        assert [float(pass_at_k(4, 1, k=k)) for k in (2, 4)] == [0.5, 1.0]
        np.testing.assert_allclose([best_of_k_bootstrap(4, 1, k=k) for k in (2, 4)], [0.4375, 0.68359375], rtol=1e-14)

    def test_against_binomials(self, backend):
        counts = [0, 1, 5, 17, 20]
        expected = [1 - math.comb(20 - c, 6) / math.comb(20, 6) for c in counts]
        backend.check(pass_at_k(20, backend.array(counts), k=6), expected)

    def test_it_is_unbiased_and_the_bootstrap_is_not(self):
        p, n, k = 0.3, 6, 3
        chance = np.array([math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)])
        counts = np.arange(n + 1)
        assert chance @ pass_at_k(n, counts, k=k) == pytest.approx(1 - (1 - p) ** k, rel=1e-12)
        assert chance @ best_of_k_bootstrap(n, counts, k=k) < 1 - (1 - p) ** k - 0.03

    def test_many_samples(self):
        value = float(pass_at_k(100_000, 1, k=5000))
        assert value == pytest.approx(0.05, rel=1e-9)
        assert to_numpy(pass_at_k(10_000, 9_999, k=2)) == pytest.approx(1.0, rel=1e-12)

    @pytest.mark.parametrize(
        ("call", "says"),
        [
            (lambda: pass_at_k(4, 1, k=5), "k must not exceed the 4 samples, got 5"),
            (lambda: pass_at_k(4, 5, k=1), "correct must hold whole numbers between 0 and the 4 samples, got 5"),
            (lambda: pass_at_k(4, 0.5, k=1), "correct must hold whole numbers"),
            (lambda: pass_at_k(0, 0, k=1), "samples must be a whole number of at least 1"),
            (lambda: best_of_k_bootstrap(4, -1, k=1), "correct must hold whole numbers"),
            (lambda: best_of_k_bootstrap(4, 1, k=0), "k must be a whole number of at least 1"),
        ],
    )
    def test_bad_input_is_named(self, call, says):
        with pytest.raises(ValueError, match=says):
            call()
