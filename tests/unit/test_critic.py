import numpy as np
import pytest

from grpo_core.credit import returns_to_go
from grpo_core.critic import continuation_errors, lambda_returns, value_loss

REWARDS, VALUES = [0.0, 0.0, 1.0], [0.2, 0.4, 0.7, 0.0]


class TestTargets:
    def test_lambda_one_is_the_measured_return(self, backend):
        got = lambda_returns(backend.array(REWARDS), backend.array(VALUES), gamma=0.9, lam=1.0)
        backend.check(got, returns_to_go(REWARDS, gamma=0.9))

    def test_lambda_zero_asks_the_critic_for_the_rest(self, backend):
        # r_t + gamma V_{t+1}
        got = lambda_returns(backend.array(REWARDS), backend.array(VALUES), gamma=0.5, lam=0.0)
        backend.check(got, [0.2, 0.35, 1.0])

    def test_a_target_has_no_gradient_and_a_value_has(self):
        torch = pytest.importorskip("torch")
        values = torch.tensor(VALUES, dtype=torch.float64, requires_grad=True)
        targets = lambda_returns(torch.tensor(REWARDS, dtype=torch.float64), values, gamma=1.0, lam=0.9)
        assert not targets.requires_grad
        value_loss(values[:-1], targets).backward()
        # d/dV of the mean of (V - target)^2 / 2
        np.testing.assert_allclose(
            values.grad[:-1].numpy(), (np.array(VALUES[:-1]) - [0.913, 0.97, 1.0]) / 3, rtol=1e-12
        )

    def test_the_loss_is_half_the_mean_square_of_gae(self):
        targets = lambda_returns(REWARDS, VALUES, gamma=1.0, lam=0.9)
        assert float(value_loss(VALUES[:-1], targets)) == pytest.approx((0.713**2 + 0.57**2 + 0.3**2) / 6)

    def test_shapes_must_fit(self):
        with pytest.raises(ValueError, match="targets must have the shape of values"):
            value_loss([1.0, 2.0], [1.0])


class TestContinuationErrors:
    def test_they_shrink_with_the_root_of_the_count(self):
        few, many = continuation_errors([[0, 1] * 2]), continuation_errors([[0, 1] * 50])
        # half right: sqrt(n / (n - 1) / 4) / sqrt(n) = 1 / (2 sqrt(n - 1))
        np.testing.assert_allclose([few[0], many[0]], [1 / (2 * 3**0.5), 1 / (2 * 99**0.5)], rtol=1e-12)

    def test_one_scored_continuation_says_nothing_about_its_error(self):
        assert np.isnan(continuation_errors([[1, None]])[0])

    def test_a_prefix_without_a_score_is_an_error(self):
        with pytest.raises(ValueError, match=r"continuation_rewards\[1\]"):
            continuation_errors([[1, 0], [None, None]])
