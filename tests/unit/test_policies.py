import itertools
import math

import numpy as np
import pytest

from grpo_core import AdvantageSpec
from grpo_core.advantages import ESTIMATORS
from grpo_core.policies import (
    angle,
    baseline_report,
    cosine,
    enumerate_groups,
    expected_reward,
    gradient_report,
    group_estimates,
    log_softmax,
    optimal_baseline,
    prefix_values,
    prefixes,
    return_reports,
    score_mean,
    sequence_outcomes,
    softmax_outcomes,
    token_advantages,
    token_report,
    true_gradient,
)
from tests.support import difference_gradient, to_numpy, torch_gradient

LOGITS = np.array([0.4, -1.1, 0.9, 0.2])
REWARDS = np.array([0.0, 1.0, 0.25, 2.0])
VOCABULARY = ["a", "b", "EOS"]
CENTRED = AdvantageSpec(scale="none")
POPULATION = AdvantageSpec(ddof=0, eps=0.0)


def tree(seed: int = 5, max_length: int = 2):
    """Return a policy of 2 letters and EOS with its own logits in every prefix, those logits, and rewards."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(len(prefixes(VOCABULARY, max_length=max_length)), 3))
    outcomes = sequence_outcomes(logits, tokens=VOCABULARY, max_length=max_length)
    return outcomes, logits, rng.normal(size=outcomes.size)


def values_by_recursion(logits, rewards: dict, prefix=(), *, max_length: int = 2):
    """Return the expected reward from `prefix` of the tree above, written without the module under test (torch)."""
    row = prefixes(VOCABULARY, max_length=max_length).index(prefix)
    total = 0.0
    for v, token in enumerate(VOCABULARY):
        longer = (*prefix, token)
        ended = token == "EOS" or len(longer) == max_length
        value = rewards[longer] if ended else values_by_recursion(logits, rewards, longer, max_length=max_length)
        total = total + logits[row].softmax(-1)[v] * value
    return total


def by_hand(outcomes, rewards, group_size, advantage, weight):
    """Return mean and covariance of the estimator, one ordered group after the other, in plain loops."""
    first, second = 0.0, 0.0
    for group in itertools.product(range(outcomes.size), repeat=group_size):
        chance = math.prod(outcomes.probs[k] for k in group)
        scored = [rewards[k] for k in group]
        lengths = [len(outcomes.tokens[k]) for k in group]
        estimate = sum(
            advantage(scored, i) * weight(lengths, i) * outcomes.scores[k, : lengths[i]].sum(axis=0)
            for i, k in enumerate(group)
        )
        first, second = first + chance * estimate, second + chance * np.outer(estimate, estimate)
    return first, second - np.outer(first, first)


def centred(rewards, i):
    return rewards[i] - sum(rewards) / len(rewards)


def normalised(rewards, i):
    spread = np.std(rewards)
    return 0.0 if max(rewards) == min(rewards) else centred(rewards, i) / spread


class TestLogSoftmax:
    def test_by_hand(self, backend):
        backend.check(log_softmax(backend.array([0.0, math.log(3.0)])), [math.log(0.25), math.log(0.75)])

    def test_large_and_impossible_logits(self, backend):
        backend.check(log_softmax(backend.array([[5e3, 5e3, -math.inf]])), [[-math.log(2), -math.log(2), -math.inf]])

    def test_gradient(self):
        exact = torch_gradient(lambda x: log_softmax(x)[1], LOGITS)
        np.testing.assert_allclose(exact, np.eye(4)[1] - np.exp(log_softmax(LOGITS)), rtol=1e-12)

    @pytest.mark.parametrize("logits", [[float("nan"), 0.0], [-math.inf, -math.inf], [math.inf, 0.0]])
    def test_rows_without_a_distribution(self, logits):
        with pytest.raises(ValueError, match="logits must hold at least one finite value"):
            log_softmax(logits)
        with pytest.raises(ValueError, match=r"logits must have shape \(\.\.\., K\)"):
            log_softmax(1.0)


class TestOutcomes:
    def test_one_step(self):
        outcomes = softmax_outcomes([0.0, math.log(3.0)], names=["left", "right"])
        assert outcomes.tokens == (("left",), ("right",))
        np.testing.assert_allclose(outcomes.probs, [0.25, 0.75], rtol=1e-14)
        np.testing.assert_allclose(outcomes.scores[:, 0], [[0.75, -0.75], [-0.25, 0.25]], rtol=1e-14)

    def test_a_tree_lists_every_completion_once(self):
        outcomes, logits, _ = tree()
        assert set(outcomes.tokens) == {
            ("EOS",), ("a", "a"), ("a", "b"), ("a", "EOS"), ("b", "a"), ("b", "b"), ("b", "EOS")
        }  # fmt: skip
        assert outcomes.probs.sum() == pytest.approx(1.0, rel=1e-14)
        truncated = {tokens for tokens, cut in zip(outcomes.tokens, outcomes.truncated, strict=True) if cut}
        assert truncated == {("a", "a"), ("a", "b"), ("b", "a"), ("b", "b")}
        rows = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(outcomes.probs[outcomes.tokens.index(("b", "EOS"))], rows[0, 1] * rows[2, 2])
        np.testing.assert_allclose(outcomes.choices, rows, rtol=1e-14)

    @pytest.mark.parametrize(
        ("sharing", "shape"), [("prefix", (7, 3)), ("position", (3, 3)), ("everywhere", (1, 3)), ("everywhere", (3,))]
    )
    def test_scores_are_the_gradient_of_the_log_probability(self, sharing, shape):
        logits = np.random.default_rng(1).normal(size=shape)

        def build(x):
            return sequence_outcomes(x, tokens=VOCABULARY, max_length=3, sharing=sharing)

        outcomes = build(logits)
        assert outcomes.size == 15
        assert outcomes.scores.shape == (15, 3, np.size(logits))
        for k in (0, 6, 14):
            numeric = difference_gradient(lambda x, k=k: build(x).logp[k].sum(), logits).ravel()
            np.testing.assert_allclose(outcomes.scores[k].sum(axis=0), numeric, atol=1e-9)

    def test_a_tensor_of_logits_is_taken_as_data(self):
        import torch

        tensor = torch.tensor(LOGITS, requires_grad=True)
        np.testing.assert_array_equal(softmax_outcomes(tensor).probs, softmax_outcomes(LOGITS).probs)

    @pytest.mark.parametrize(
        ("call", "says"),
        [
            (lambda: softmax_outcomes([]), "logits must be finite numbers, at least one"),
            (lambda: softmax_outcomes([0.0, math.inf]), "logits must be finite numbers"),
            (lambda: softmax_outcomes([[0.0]]), r"logits must have shape \(actions,\)"),
            (lambda: softmax_outcomes([0.0], names=["a", "b"]), "names must have one entry for each of the 1 actions"),
            (
                lambda: sequence_outcomes([0, 0], tokens=["a", "EOS"], max_length=3),
                r"logits must have shape \(3, 2\) for sharing 'prefix', got \(1, 2\)",
            ),
            (lambda: sequence_outcomes([0], tokens=["a"], max_length=1), "at least two different ones with eos 'EOS'"),
            (lambda: prefixes(["a", "b"], max_length=1), "eos 'EOS' among them"),
            (lambda: prefixes(["a", "EOS"], max_length=0), "max_length must be a whole number of at least 1"),
            (lambda: prefixes(VOCABULARY, max_length=13), "max_length 13 gives more than 4096 outcomes"),
            (lambda: sequence_outcomes([0], tokens=VOCABULARY, max_length=1, sharing="all"), "sharing must be one of"),
            (lambda: true_gradient(softmax_outcomes([0.0]), [1, 2]), "one number for each of the 1 outcomes"),
            (lambda: expected_reward(softmax_outcomes([0.0]), [None]), "rewards must be numbers|finite"),
        ],
    )
    def test_bad_input_is_named(self, call, says):
        with pytest.raises(ValueError, match=says):
            call()


class TestExactQuantities:
    def test_case_bandit(self):
        # probabilities 0.3 and 0.7, returns 5 and 1: J = 2.2, and dJ/du = 0.3 (5 - 2.2) = 0.84
        outcomes = softmax_outcomes(np.log([0.3, 0.7]))
        assert expected_reward(outcomes, [5, 1]) == pytest.approx(2.2, rel=1e-14)
        np.testing.assert_allclose(true_gradient(outcomes, [5, 1]), [0.84, -0.84], rtol=1e-12)
        np.testing.assert_allclose(token_advantages(outcomes, [5, 1])[:, 0], [2.8, -1.2], rtol=1e-12)

    def test_true_gradient_against_autograd(self):
        exact = torch_gradient(lambda x: (x.softmax(-1) * x.new_tensor(REWARDS)).sum(), LOGITS)
        np.testing.assert_allclose(true_gradient(softmax_outcomes(LOGITS), REWARDS), exact, rtol=1e-12)

    def test_true_gradient_of_a_tree_against_autograd(self):
        outcomes, logits, rewards = tree(max_length=3)
        table = dict(zip(outcomes.tokens, rewards, strict=True))
        exact = torch_gradient(lambda x: values_by_recursion(x, table, max_length=3), logits)
        np.testing.assert_allclose(true_gradient(outcomes, rewards), exact.ravel(), rtol=1e-11, atol=1e-14)

    def test_prefix_values_against_recursion(self):
        import torch

        outcomes, logits, rewards = tree(max_length=3)
        table, values = dict(zip(outcomes.tokens, rewards, strict=True)), prefix_values(outcomes, rewards)
        for tokens, row in zip(outcomes.tokens, values, strict=True):
            for t in range(len(tokens)):
                exact = values_by_recursion(torch.tensor(logits), table, tokens[:t], max_length=3)
                assert row[t] == pytest.approx(float(exact), rel=1e-12)
            np.testing.assert_array_equal(row[len(tokens) :], 0.0)

    def test_token_advantages_average_to_zero_in_every_prefix(self):
        outcomes, _, rewards = tree()
        advantages = token_advantages(outcomes, rewards)
        for state in range(3):
            k, t = np.nonzero(outcomes.states == state)
            assert outcomes.probs[k] @ advantages[k, t] == pytest.approx(0.0, abs=1e-15)

    def test_the_score_has_zero_mean_unless_the_length_divides_it(self):
        outcomes, logits, _ = tree()
        np.testing.assert_allclose(score_mean(outcomes), 0.0, atol=1e-15)
        np.testing.assert_allclose(score_mean(outcomes, aggregation="constant", constant=7), 0.0, atol=1e-15)

        def inverse_length(x):
            moved = sequence_outcomes(x, tokens=VOCABULARY, max_length=2)
            return moved.probs @ (1.0 / moved.lengths)

        divided = score_mean(outcomes, aggregation="sequence_mean")
        np.testing.assert_allclose(divided, difference_gradient(inverse_length, logits).ravel(), atol=1e-9)
        assert np.linalg.norm(divided) > 0.05
        np.testing.assert_allclose(score_mean(outcomes, aggregation="token_mean"), divided, rtol=1e-14)

    def test_optimal_baseline_has_the_least_variance(self):
        outcomes = softmax_outcomes(LOGITS)
        best = optimal_baseline(outcomes, REWARDS)
        variance = {b: baseline_report(outcomes, REWARDS, baseline=best + b).variance for b in (-0.01, 0.0, 0.01)}
        assert variance[0.0] < min(variance[-0.01], variance[0.01])
        mean = expected_reward(outcomes, REWARDS)
        assert abs(best - mean) > 0.1
        assert variance[0.0] < baseline_report(outcomes, REWARDS, baseline=mean).variance
        # by hand for two actions: |z|^2 is 2 (1 - p)^2, so b* = (p q^2 5 + q p^2 1) / (p q^2 + q p^2) = 5 q + p
        assert optimal_baseline(softmax_outcomes(np.log([0.3, 0.7])), [5, 1]) == pytest.approx(3.8, rel=1e-12)

    def test_optimal_baseline_of_a_single_outcome(self):
        with pytest.raises(ValueError, match="every score is zero"):
            optimal_baseline(softmax_outcomes([2.0]), [1.0])


class TestGroups:
    @pytest.mark.parametrize(("outcomes", "size"), [(2, 1), (2, 5), (3, 4), (6, 4)])
    def test_multisets_are_the_ordered_groups_collected(self, outcomes, size):
        probs = np.random.default_rng(0).dirichlet(np.ones(outcomes))
        ordered, ordered_chance = enumerate_groups(probs, group_size=size, ordered=True)
        assert len(ordered) == outcomes**size
        groups, chances = enumerate_groups(probs, group_size=size)
        assert chances.sum() == pytest.approx(1.0, rel=1e-13)
        for group, chance in zip(groups, chances, strict=True):
            same = (np.sort(ordered, axis=1) == group).all(axis=1)
            assert ordered_chance[same].sum() == pytest.approx(chance, rel=1e-12)

    def test_too_many(self):
        with pytest.raises(ValueError, match="group_size 8 with 6 outcomes gives 1679616 groups, more than 500000"):
            enumerate_groups(np.full(6, 1 / 6), group_size=8, ordered=True)
        with pytest.raises(ValueError, match="group_size must be a whole number of at least 1, got 0"):
            enumerate_groups([1.0], group_size=0)


class TestGradientReport:
    @pytest.mark.parametrize(
        ("rewards", "true"),
        [([0, 1, 10], [-11 / 9, -8 / 9, 19 / 9]), ([0, 9, 10], [-19 / 9, 8 / 9, 11 / 9])],
    )
    def test_case_softmax3(self, rewards, true):
        outcomes = softmax_outcomes([0.0, 0.0, 0.0])
        by_std = gradient_report(outcomes, rewards, POPULATION, group_size=2)
        np.testing.assert_allclose(by_std.true, true, rtol=1e-12)
        np.testing.assert_allclose(by_std.expected, [-2 / 9, 0, 2 / 9], atol=1e-15)
        only_centred = gradient_report(outcomes, rewards, CENTRED, group_size=2)
        np.testing.assert_allclose(only_centred.expected, np.array(true) / 2, rtol=1e-12)
        assert only_centred.cosine == pytest.approx(1.0, rel=1e-14)
        assert by_std.cosine == pytest.approx(10 / math.sqrt(2 * np.dot(true, true) * 9), rel=1e-12)
        assert by_std.cosine < 0.95

    @pytest.mark.parametrize("group_size", [2, 3, 8])
    def test_case_self_inclusion(self, group_size):
        report = gradient_report(softmax_outcomes(LOGITS), REWARDS, CENTRED, group_size=group_size)
        assert report.scale == pytest.approx((group_size - 1) / group_size, rel=1e-12)
        np.testing.assert_allclose(report.expected, report.scale * report.true, rtol=1e-11, atol=1e-15)

    @pytest.mark.parametrize("group_size", [2, 4])
    def test_leave_one_out_is_unbiased(self, group_size):
        outcomes, _, rewards = tree()
        report = gradient_report(outcomes, rewards, AdvantageSpec(estimator="leave_one_out"), group_size=group_size)
        np.testing.assert_allclose(report.bias, 0.0, atol=1e-14)
        assert report.scale == pytest.approx(1.0, rel=1e-12)

    @pytest.mark.parametrize("ordered", [False, True])
    @pytest.mark.parametrize(("spec", "advantage"), [(CENTRED, centred), (POPULATION, normalised)])
    @pytest.mark.parametrize(
        ("aggregation", "weight"),
        [
            ("sequence_sum", lambda lengths, i: 1 / len(lengths)),
            ("sequence_mean", lambda lengths, i: 1 / (len(lengths) * lengths[i])),
            ("token_mean", lambda lengths, i: 1 / sum(lengths)),
            ("constant", lambda lengths, i: 1 / (len(lengths) * 5)),
            ("token_sum", lambda lengths, i: 1.0),
        ],
    )
    def test_against_plain_loops(self, ordered, spec, advantage, aggregation, weight):
        outcomes, _, rewards = tree()
        report = gradient_report(
            outcomes, rewards, spec, group_size=3, aggregation=aggregation, constant=5.0, ordered=ordered
        )
        assert report.groups == (343 if ordered else 84)
        expected, covariance = by_hand(outcomes, rewards, 3, advantage, weight)
        np.testing.assert_allclose(report.expected, expected, rtol=1e-11, atol=1e-15)
        np.testing.assert_allclose(report.covariance, covariance, rtol=1e-9, atol=1e-14)
        assert report.variance == pytest.approx(np.trace(covariance), rel=1e-10)
        np.testing.assert_array_equal(report.coordinate_variance, np.diagonal(report.covariance))

    @pytest.mark.parametrize("estimator", ESTIMATORS)
    def test_every_estimator_of_the_core(self, estimator):
        outcomes, _, rewards = tree()
        spec, options = AdvantageSpec(estimator=estimator), {"group_size": 3, "aggregation": "token_mean"}
        listed, ordered = (gradient_report(outcomes, rewards, spec, ordered=x, **options) for x in (False, True))
        np.testing.assert_allclose(listed.expected, ordered.expected, rtol=1e-10, atol=1e-15)
        np.testing.assert_allclose(listed.covariance, ordered.covariance, rtol=1e-9, atol=1e-14)
        assert np.linalg.norm(listed.expected) > 1e-3

    @pytest.mark.parametrize("estimator", ["reward", "greedy_baseline", "leave_one_out"])
    def test_baselines_from_elsewhere_leave_the_mean_alone(self, estimator):
        outcomes, _, rewards = tree()
        report = gradient_report(outcomes, rewards, AdvantageSpec(estimator=estimator), group_size=2)
        np.testing.assert_allclose(report.bias, 0.0, atol=1e-14)

    def test_the_greedy_outcome(self):
        logits = [[0.0, 1.0, 0.5], [9.0, 0.0, 0.0], [0.0, 0.2, 0.1]]
        outcomes = sequence_outcomes(logits, tokens=VOCABULARY, max_length=2)
        assert outcomes.tokens[outcomes.greedy] == ("b", "b")
        assert softmax_outcomes(LOGITS).greedy == 2

    def test_a_batch_mean_is_the_mean_of_that_group_alone(self):
        outcomes = softmax_outcomes(LOGITS)
        pooled = gradient_report(outcomes, REWARDS, AdvantageSpec(estimator="batch_mean"), group_size=3)
        own = gradient_report(outcomes, REWARDS, CENTRED, group_size=3)
        np.testing.assert_allclose(pooled.expected, own.expected, rtol=1e-12, atol=1e-16)

    def test_the_batch_is_the_group(self):
        outcomes = softmax_outcomes(LOGITS)
        reports = [
            gradient_report(outcomes, REWARDS, AdvantageSpec(scale=scale), group_size=3) for scale in ("batch", "group")
        ]
        np.testing.assert_allclose(reports[0].expected, reports[1].expected, rtol=1e-12)
        np.testing.assert_allclose(reports[0].covariance, reports[1].covariance, rtol=1e-10, atol=1e-16)

    def test_six_actions_and_groups_of_four_and_eight(self):
        outcomes = softmax_outcomes(np.linspace(-1, 1, 6))
        rewards = [0, 0, 1, 1, 0.5, 2]
        ordered = gradient_report(outcomes, rewards, AdvantageSpec(), group_size=4, ordered=True)
        listed = gradient_report(outcomes, rewards, AdvantageSpec(), group_size=4)
        assert (ordered.groups, listed.groups) == (1296, 126)
        np.testing.assert_allclose(listed.expected, ordered.expected, rtol=1e-11, atol=1e-16)
        np.testing.assert_allclose(listed.covariance, ordered.covariance, rtol=1e-10, atol=1e-16)
        larger = gradient_report(outcomes, rewards, AdvantageSpec(), group_size=8)
        assert larger.groups == 1287
        assert larger.variance < listed.variance

    def test_signal_is_the_probability_of_a_mixed_group(self):
        outcomes = softmax_outcomes(np.log([0.2, 0.8]))
        report = gradient_report(outcomes, [1, 0], AdvantageSpec(), group_size=4)
        assert report.signal == pytest.approx(1 - 0.2**4 - 0.8**4, rel=1e-12)

    def test_no_direction(self):
        report = gradient_report(softmax_outcomes(LOGITS), np.full(4, 0.1), AdvantageSpec(), group_size=3)
        np.testing.assert_array_equal(report.expected, 0.0)
        assert report.variance == report.signal == 0.0
        assert math.isnan(report.cosine)
        assert math.isnan(report.scale)

    def test_groups_of_one_carry_nothing(self):
        report = gradient_report(softmax_outcomes(LOGITS), REWARDS, AdvantageSpec(), group_size=1)
        np.testing.assert_array_equal(report.expected, 0.0)

    def test_bad_input_is_named(self):
        outcomes = softmax_outcomes(LOGITS)
        with pytest.raises(ValueError, match="mode must be one of"):
            gradient_report(outcomes, REWARDS, CENTRED, group_size=2, aggregation="mean")
        with pytest.raises(ValueError, match="constant must be given"):
            gradient_report(outcomes, REWARDS, CENTRED, group_size=2, aggregation="constant")


class TestReduction:
    """Dividing by the completion's own length (R4) and what Dr. GRPO removes (R5)."""

    def test_a_constant_keeps_the_direction(self):
        outcomes, _, rewards = tree(max_length=3)
        report = gradient_report(outcomes, rewards, CENTRED, group_size=4, aggregation="constant", constant=3.0)
        np.testing.assert_allclose(report.expected, 3 / 4 / 3 * report.true, rtol=1e-10, atol=1e-15)

    @pytest.mark.parametrize("baseline", [0.0, 0.8])
    def test_dividing_by_the_length_optimises_another_objective(self, baseline):
        outcomes, logits, rewards = tree()

        def objective(x):
            moved = sequence_outcomes(x, tokens=VOCABULARY, max_length=2)
            return moved.probs @ ((rewards - baseline) / moved.lengths)

        report = baseline_report(outcomes, rewards, baseline=baseline, aggregation="sequence_mean")
        np.testing.assert_allclose(report.expected, difference_gradient(objective, logits).ravel(), atol=1e-8)
        assert report.cosine < 0.999

    def test_the_baseline_then_moves_the_expected_gradient(self):
        outcomes, _, rewards = tree()
        for aggregation, moves in (("sequence_sum", False), ("sequence_mean", True)):
            low, high = (baseline_report(outcomes, rewards, baseline=b, aggregation=aggregation) for b in (0.0, 2.0))
            shift = low.expected - high.expected
            np.testing.assert_allclose(shift, 2.0 * score_mean(outcomes, aggregation=aggregation), atol=1e-14)
            assert (np.abs(shift).max() > 1e-3) == moves

    def test_a_group_averages_independent_estimates(self):
        outcomes, _, rewards = tree()
        one, four = (baseline_report(outcomes, rewards, baseline=0.3, group_size=size) for size in (1, 4))
        np.testing.assert_allclose(one.expected, one.true, rtol=1e-11, atol=1e-14)
        np.testing.assert_allclose(four.expected, one.true, rtol=1e-11, atol=1e-14)
        np.testing.assert_allclose(four.covariance, one.covariance / 4, rtol=1e-9, atol=1e-14)


class TestCredit:
    def test_exact_advantages_give_the_true_gradient_with_less_variance(self):
        outcomes, _, rewards = tree(max_length=3)
        true = true_gradient(outcomes, rewards)
        critic = token_report(outcomes, token_advantages(outcomes, rewards), true)
        plain = baseline_report(outcomes, rewards)
        np.testing.assert_allclose(critic.bias, 0.0, atol=1e-14)
        assert critic.variance < plain.variance

    def step_rewards(self, outcomes):
        paid = {("a",): 1.0, ("b",): 0.5, ("EOS",): 0.0, ("a", "a"): 0.25, ("a", "b"): 2.0, ("a", "EOS"): 0.5}
        return np.array([[paid.get(o[: t + 1], -1.0) for t in range(2)] for o in outcomes.tokens])

    def test_reward_to_go_and_the_discount(self):
        outcomes, logits, _ = tree()
        paid = np.where(outcomes.mask, self.step_rewards(outcomes), 0.0)

        def objective(x):
            moved = sequence_outcomes(x, tokens=VOCABULARY, max_length=2)
            return moved.probs @ (paid[:, 0] + 0.5 * paid[:, 1])

        reports = return_reports(outcomes, self.step_rewards(outcomes), gamma=0.5)
        numeric = difference_gradient(objective, logits).ravel()
        for name in ("total_return", "reward_to_go"):
            np.testing.assert_allclose(reports[name].expected, numeric, atol=1e-8)
        assert reports["reward_to_go"].variance < reports["total_return"].variance
        # Without the outer discount the later token counts double
        later = np.zeros((3, 3), dtype=bool)
        later[1:] = True
        dropped = reports["discount_dropped"]
        np.testing.assert_allclose(dropped.expected, numeric * np.where(later.ravel(), 2.0, 1.0), atol=1e-8)
        undiscounted = return_reports(outcomes, self.step_rewards(outcomes))
        np.testing.assert_allclose(undiscounted["discount_dropped"].bias, 0.0, atol=1e-14)

    def test_bad_input_is_named(self):
        outcomes, _, rewards = tree()
        peeking = np.where(outcomes.mask, rewards[:, None], 0.0)
        with pytest.raises(ValueError, match=r"must not depend on later tokens, but differ after \('a',\)"):
            return_reports(outcomes, peeking)
        with pytest.raises(ValueError, match=r"step_rewards must have shape \(7, 2\), got \(7,\)"):
            return_reports(outcomes, rewards)
        with pytest.raises(ValueError, match=r"coefficients must have shape \(7, 2\)"):
            token_report(outcomes, rewards, np.zeros(9))


def test_outcomes_are_numpy_float64_whatever_came_in(backend):
    outcomes = softmax_outcomes(backend.array([0.0, 0.5]))
    assert outcomes.probs.dtype == np.float64
    np.testing.assert_allclose(outcomes.probs, np.exp(to_numpy(log_softmax(backend.array([0.0, 0.5])))), rtol=1e-6)


class TestGroupEstimates:
    def test_mean_and_covariance_are_those_of_the_report(self):
        outcomes = softmax_outcomes(LOGITS)
        for spec in (CENTRED, POPULATION, AdvantageSpec(estimator="greedy_baseline")):
            listed = group_estimates(outcomes, REWARDS, spec, group_size=3)
            found = gradient_report(outcomes, REWARDS, spec, group_size=3)
            mean = listed.chances @ listed.estimates
            np.testing.assert_allclose(mean, found.expected, atol=1e-15)
            spread = (listed.chances[:, None] * (listed.estimates - mean) ** 2).sum(axis=0)
            np.testing.assert_allclose(spread, found.coordinate_variance, atol=1e-15)

    def test_a_fixed_baseline(self):
        outcomes = softmax_outcomes(LOGITS)
        listed = group_estimates(outcomes, REWARDS, None, baseline=0.5, group_size=2)
        np.testing.assert_array_equal(listed.advantages, REWARDS[listed.groups] - 0.5)
        found = baseline_report(outcomes, REWARDS, baseline=0.5, group_size=2)
        np.testing.assert_allclose(listed.chances @ listed.estimates, found.expected, atol=1e-15)


class TestDirections:
    def test_angles_by_hand(self):
        for degrees in (1e-6, 0.5, 60.0, 90.0, 135.0, 180.0):
            turned = [3.0 * math.cos(math.radians(degrees)), 3.0 * math.sin(math.radians(degrees))]
            assert angle([2.0, 0.0], turned) == pytest.approx(degrees, rel=1e-9)
            assert cosine([2.0, 0.0], turned) == pytest.approx(math.cos(math.radians(degrees)), abs=1e-15)

    def test_the_same_direction_is_no_angle_whatever_rounding_does(self):
        rng = np.random.default_rng(1)
        for gradient in rng.normal(size=(50, 5)):
            assert angle(gradient, gradient * 0.1 * 3) < 1e-12

    def test_nothing_has_no_direction(self):
        for pair in (([0.0, 0.0], [1.0, 2.0]), ([1.0, 2.0], [1e-14, 0.0]), ([0.0], [0.0])):
            assert math.isnan(angle(*pair))
            assert math.isnan(cosine(*pair))

    def test_bad_input_is_named(self):
        with pytest.raises(ValueError, match="second must be finite numbers"):
            angle([1.0], [math.nan])
