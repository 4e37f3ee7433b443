import numpy as np
import pytest

from grpo_core import categorical_kl, kl_estimate
from grpo_core.kl_gradients import WEIGHTINGS, expected_kl, kl_gradient, reverse_kl_gradient
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
