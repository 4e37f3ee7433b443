import numpy as np
import pytest

from grpo_core import kl_estimate
from grpo_core.kl_placement import sequence_kl, shaped_rewards
from grpo_core.policies import sequence_outcomes, softmax_outcomes

TOKENS = ["a", "b", "EOS"]


class TestShapedRewards:
    def test_the_sum_is_the_reward_less_beta_k1(self, backend):
        logp, ref = [-1.0, -0.3, -2.0], [-1.5, -0.3, -1.0]
        got = shaped_rewards(0.7, backend.array(logp), backend.array(ref), beta=0.1)
        backend.check(got, [-0.05, 0.0, 0.7 + 0.1])
        k1 = kl_estimate(np.array(logp), np.array(ref), estimator="k1")
        assert float(sum(got)) == pytest.approx(0.7 - 0.1 * k1.sum(), rel=1e-5)

    def test_a_reward_has_no_gradient(self):
        torch = pytest.importorskip("torch")
        logp = torch.tensor([-1.0], requires_grad=True)
        assert not shaped_rewards(1.0, logp, torch.tensor([-2.0]), beta=1.0).requires_grad

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (([-1.0], [-1.0, -2.0]), "ref_logp must have the shape"),
            (([], []), "at least one token"),
            (([[-1.0]], [[-1.0]]), "at least one token"),
        ],
    )
    def test_bad_input(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            shaped_rewards(1.0, *arguments, beta=0.1)

    def test_beta_must_not_be_negative(self):
        with pytest.raises(ValueError, match="beta"):
            shaped_rewards(1.0, [-1.0], [-1.0], beta=-0.1)


class TestSequenceKL:
    def test_the_parts_add_up_to_the_whole(self):
        rng = np.random.default_rng(0)
        p, q = (sequence_outcomes(rng.normal(size=(7, 3)), tokens=TOKENS, max_length=3) for _ in range(2))
        result = sequence_kl(p, q)
        assert result.terms.sum() == pytest.approx(result.sequence, rel=1e-12)
        assert result.reach[0] == pytest.approx(1.0)

    def test_weighting_by_the_reference_gives_another_number(self):
        rng = np.random.default_rng(1)
        p, q = (sequence_outcomes(2 * rng.normal(size=(3, 3)), tokens=TOKENS, max_length=2) for _ in range(2))
        result = sequence_kl(p, q)
        under_reference = float(sequence_kl(q, p).reach @ result.conditional)
        assert abs(under_reference - result.sequence) > 0.01

    def test_two_steps_by_hand(self):
        # first token a or EOS with 1/2 each; after a, EOS with 3/4 against 1/2 in the reference
        p = sequence_outcomes([[0, 0], [0, np.log(3)]], tokens=["a", "EOS"], max_length=2)
        q = sequence_outcomes([[0, 0], [0, 0]], tokens=["a", "EOS"], max_length=2)
        inner = 0.25 * np.log(0.5) + 0.75 * np.log(1.5)
        result = sequence_kl(p, q)
        np.testing.assert_allclose(result.reach, [1.0, 0.5], rtol=1e-12)
        np.testing.assert_allclose(result.conditional, [0.0, inner], atol=1e-15)
        assert result.sequence == pytest.approx(0.5 * inner)

    def test_other_outcomes_are_an_error(self):
        with pytest.raises(ValueError, match="same outcomes"):
            sequence_kl(softmax_outcomes([0, 0]), softmax_outcomes([0, 0, 0]))
