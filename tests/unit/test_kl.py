import math

import numpy as np
import pytest

from grpo_core import categorical_kl, kl_estimate
from grpo_core.kl import k3_as_written, kl_from_log_ratio, kl_slope
from tests.support import difference_gradient, to_numpy, torch_gradient

LOG2 = math.log(2.0)


class TestKlEstimate:
    @pytest.mark.parametrize(
        ("estimator", "expected"),
        [
            ("k1", [LOG2, -LOG2, 0.0]),
            ("k2", [LOG2**2 / 2, LOG2**2 / 2, 0.0]),
            ("k3", [-0.5 + LOG2, 1 - LOG2, 0.0]),  # expm1(d) - d at d = -ln 2, ln 2, 0
        ],
    )
    def test_by_hand(self, backend, estimator, expected):
        logp, ref = backend.array([-1.0, -2.0, -3.0]), backend.array([-1 - LOG2, -2 + LOG2, -3.0])
        backend.check(kl_estimate(logp, ref, estimator=estimator), expected)

    def test_k3_keeps_its_digits_for_tiny_differences(self, backend):
        # exp(d) - d - 1 gives 1.66e-8 in float32 here; the true value is d^2/2 + d^3/6 = 5.0002e-9
        d = np.float32(1e-4)
        value = float(kl_estimate(backend.array([0.0]), backend.array([d]), estimator="k3")[0])
        expected = float(d) ** 2 / 2 + float(d) ** 3 / 6
        assert value == pytest.approx(expected, rel=1e-3 if backend.dtype == "float32" else 1e-9)

    @pytest.mark.parametrize("d", [1e-8, -1e-8, 3e-5, -3e-5])
    def test_k3_is_never_negative(self, backend, d):
        assert float(kl_estimate(backend.array([0.0]), backend.array([d]))[0]) >= 0.0

    def test_overflow_is_inf_without_a_warning(self, backend):
        assert float(kl_estimate(backend.array([-2000.0]), backend.array([0.0]))[0]) == math.inf

    @pytest.mark.parametrize(
        ("estimator", "slope"),
        # d/dlogp with d = ref - logp:  1, -d, 1 - exp(d)
        [("k1", [1.0, 1.0]), ("k2", [LOG2, -LOG2]), ("k3", [0.5, -1.0])],
    )
    def test_gradient(self, estimator, slope):
        logp, ref = np.array([-1.0, -2.0]), np.array([-1 - LOG2, -2 + LOG2])
        numeric = difference_gradient(lambda x: kl_estimate(x, ref, estimator=estimator).sum(), logp)
        import torch

        exact = torch_gradient(lambda x: kl_estimate(x, torch.tensor(ref), estimator=estimator).sum(), logp)
        np.testing.assert_allclose(exact, slope, rtol=1e-14)
        np.testing.assert_allclose(numeric, slope, rtol=1e-8)

    def test_the_reference_carries_no_gradient(self):
        assert torch_gradient(lambda x: kl_estimate(x.detach() - 1, x, estimator="k2").sum() + 0 * x.sum(), [1.0]) == 0

    @pytest.mark.parametrize(
        ("logp", "ref", "estimator", "says"),
        [
            ([0.0], [0.0], "k4", "estimator must be one of .*'k3'.* got 'k4'"),
            ([0.0], [0.0, 1.0], "k3", r"ref_logp must have the shape of logp, \(1,\), got \(2,\)"),
            (["x"], [0.0], "k3", "logp must be numbers"),
        ],
    )
    def test_bad_input_is_named(self, logp, ref, estimator, says):
        with pytest.raises(ValueError, match=says):
            kl_estimate(logp, ref, estimator=estimator)


class TestOtherForms:
    @pytest.mark.parametrize("estimator", ["k1+", "k2+", "k3+", "abs+"])
    def test_plus_keeps_the_value_and_takes_k2_s_gradient(self, estimator):
        import torch

        logp, ref = np.array([-1.0, -2.0]), np.array([-1 - LOG2, -2 + LOG2])
        value = kl_estimate(logp, ref, estimator=estimator)
        np.testing.assert_allclose(value, kl_estimate(logp, ref, estimator=estimator[:-1]), rtol=1e-15)
        slope = torch_gradient(lambda x: kl_estimate(x, torch.tensor(ref), estimator=estimator).sum(), logp)
        np.testing.assert_allclose(slope, logp - ref, rtol=1e-12)

    def test_abs(self, backend):
        backend.check(kl_estimate(backend.array([0.0, 0.0]), backend.array([-2, 3]), estimator="abs"), [2.0, 3.0])

    @pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "abs", "k1+", "k3+", "abs+"])
    def test_slope_is_the_derivative(self, estimator):
        import torch

        d = np.array([-3.0, -0.1, 0.2, 2.0])
        slope = torch_gradient(lambda x: kl_estimate(x, torch.tensor(d), estimator=estimator).sum(), np.zeros(4))
        np.testing.assert_allclose(kl_slope(d, estimator=estimator), slope, rtol=1e-12)

    def test_caps_bound_the_log_ratio_and_the_value(self, backend):
        d = backend.array([30.0, -30.0, 1.0])
        capped = kl_from_log_ratio(d, log_ratio_cap=20.0, value_cap=10.0)
        backend.check(capped, [10.0, 10.0, math.e - 2])
        only_ratio = kl_from_log_ratio(d, estimator="k1", log_ratio_cap=20.0)
        backend.check(only_ratio, [-20.0, 20.0, -1.0])

    @pytest.mark.parametrize("d", [800.0, -800.0])
    def test_a_capped_term_has_a_finite_gradient(self, d):
        slope = torch_gradient(lambda x: kl_from_log_ratio(-x, log_ratio_cap=20.0, value_cap=10.0).sum(), [-d])
        assert slope.tolist() == [0.0]

    def test_a_cap_must_be_positive(self):
        with pytest.raises(ValueError, match="cap must be finite and above 0, got 0"):
            kl_from_log_ratio(np.zeros(1), value_cap=0)


class TestCategoricalKl:
    def test_by_hand(self, backend):
        # 1/2 ln 2 + 1/2 ln(2/3)
        backend.check(categorical_kl(backend.array([0.5, 0.5]), backend.array([0.25, 0.75])), math.log(4 / 3) / 2)

    def test_rows(self, backend):
        result = categorical_kl(backend.array([[0.5, 0.5], [1, 0]]), backend.array([[0.5, 0.5], [0.5, 0.5]]))
        backend.check(result, [0.0, LOG2])

    def test_zeros(self, backend):
        backend.check(categorical_kl(backend.array([0, 1]), backend.array([0, 1])), 0.0)
        assert float(categorical_kl(backend.array([0.5, 0.5]), backend.array([1.0, 0.0]))) == math.inf

    def test_gradient_stays_finite_at_zero(self):
        import torch

        p = torch.tensor([0.0, 1.0], dtype=torch.float64, requires_grad=True)
        categorical_kl(p, torch.tensor([0.5, 0.5], dtype=torch.float64)).backward()
        assert torch.isfinite(p.grad).all()

    @pytest.mark.parametrize(
        ("p", "q", "says"),
        [
            ([0.5, 0.6], [0.5, 0.5], "p must be non-negative probabilities that sum to 1, got sums 1.1"),
            ([0.5, 0.5], [1.5, -0.5], "q must be non-negative"),
            ([0.5, 0.5], [0.2, 0.3, 0.5], "q must have the shape of p"),
            (1.0, 1.0, "p must hold at least one probability"),
            ([math.nan, 0.5], [0.5, 0.5], "p must be non-negative"),
            (["a", "b"], [0.5, 0.5], "p must be numbers"),
        ],
    )
    def test_bad_input_is_named(self, p, q, says):
        with pytest.raises(ValueError, match=says):
            categorical_kl(p, q)

    def test_never_negative(self):
        rng = np.random.default_rng(0)
        p, q = rng.dirichlet([0.3] * 5, 50), rng.dirichlet([0.3] * 5, 50)
        assert (to_numpy(categorical_kl(p, q)) >= 0).all()


class TestAsWritten:
    def test_equals_k3_where_rounding_has_no_say(self, backend):
        d = backend.array([-2.0, -0.5, 0.5, 3.0])
        backend.check(k3_as_written(d), np.expm1([-2.0, -0.5, 0.5, 3.0]) - [-2.0, -0.5, 0.5, 3.0])

    def test_loses_its_digits_near_zero_and_expm1_does_not(self):
        # d^2/2 + d^3/6 is exact to 1e-16 here
        assert float(kl_estimate([0.0], [1e-8])[0]) == pytest.approx(5e-17 + 1e-24 / 6, rel=1e-6)
        assert float(k3_as_written([1e-8])[0]) < 0
        small = np.array([1e-4], dtype=np.float32)
        assert float(kl_estimate(np.zeros_like(small), small)[0]) == pytest.approx(5e-9, rel=1e-3)
        assert float(k3_as_written(small)[0]) == pytest.approx(5e-9, abs=1e-7)
        assert abs(float(k3_as_written(small)[0]) / 5e-9 - 1) > 1

    def test_overflows_to_infinity(self):
        assert float(k3_as_written([1000.0])[0]) == math.inf
