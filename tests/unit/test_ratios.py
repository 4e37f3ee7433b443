import math

import numpy as np
import pytest

from grpo_core import importance_ratio
from grpo_core.ratios import LOG_RATIO_CAP
from tests.support import difference_gradient, to_numpy, torch_gradient

LOG2 = math.log(2.0)


class TestImportanceRatio:
    # log-ratios: [ln 2, -ln 2, ln 2] and [ln 4] with two masked positions
    LOGP = ((LOG2 - 3, -LOG2 - 3, LOG2 - 3), (2 * LOG2 - 3, 9.0, 9.0))
    OLD = ((-3.0, -3.0, -3.0), (-3.0, -5.0, -5.0))
    MASK = ((True, True, True), (True, False, False))

    @pytest.mark.parametrize(
        ("level", "expected"),
        [
            ("token", [[2.0, 0.5, 2.0], [4.0, 1.0, 1.0]]),
            ("sequence", [[2 ** (1 / 3)], [4.0]]),
            ("trajectory", [[2.0], [4.0]]),
        ],
    )
    def test_by_hand(self, backend, level, expected):
        ratio = importance_ratio(
            backend.array(self.LOGP), backend.array(self.OLD), backend.mask(self.MASK), level=level
        )
        backend.check(ratio, expected)

    @pytest.mark.parametrize("level", ["token", "sequence", "trajectory"])
    @pytest.mark.parametrize("padding", [-math.inf, math.inf, math.nan, 1e308])
    def test_what_stands_on_padding_never_matters(self, backend, level, padding):
        clean, dirty = np.array(self.LOGP), np.array(self.LOGP)
        if backend.dtype == "float32" and padding == 1e308:
            padding = 3e38
        dirty[~np.array(self.MASK)] = padding
        mask = backend.mask(self.MASK)
        expected = importance_ratio(backend.array(clean), backend.array(self.OLD), mask, level=level)
        for logp, old in ((dirty, self.OLD), (clean, np.where(self.MASK, self.OLD, padding))):
            result = importance_ratio(backend.array(logp), backend.array(old), mask, level=level)
            np.testing.assert_array_equal(to_numpy(result), to_numpy(expected))

    @pytest.mark.parametrize("level", ["token", "sequence", "trajectory"])
    def test_padding_never_reaches_the_gradient(self, level):
        import torch

        mask = torch.tensor(self.MASK)
        logp = torch.tensor(self.LOGP, dtype=torch.float64)
        logp[~mask] = -math.inf
        logp.requires_grad_()
        importance_ratio(logp, torch.tensor(self.OLD, dtype=torch.float64), mask, level=level).sum().backward()
        assert torch.isfinite(logp.grad).all()
        assert (logp.grad[~mask] == 0).all()

    @pytest.mark.parametrize("level", ["token", "sequence", "trajectory"])
    def test_empty_completion_has_ratio_one(self, backend, level):
        mask = backend.mask([[False, False, False], [True, False, False]])
        ratio = to_numpy(importance_ratio(backend.array(self.LOGP), backend.array(self.OLD), mask, level=level))
        assert (ratio[0] == 1.0).all()

    @pytest.mark.parametrize("level", ["token", "sequence", "trajectory"])
    def test_autograd_agrees_with_differences(self, level):
        old, mask, w = np.array(self.OLD), np.array(self.MASK), np.array([[1.0, -2.0, 0.5], [3.0, 1.0, 1.0]])
        logp = np.where(mask, self.LOGP, 0.0)
        w = w if level == "token" else w[:, :1]
        numeric = difference_gradient(lambda x: (w * importance_ratio(x, old, mask, level=level)).sum(), logp)

        import torch

        exact = torch_gradient(
            lambda x: (torch.tensor(w) * importance_ratio(x, torch.tensor(old), torch.tensor(mask), level=level)).sum(),
            logp,
        )
        np.testing.assert_allclose(exact, numeric, rtol=1e-7, atol=1e-8)

    def test_the_old_policy_is_data_even_when_it_shares_the_graph(self):
        # exp(x - stop_gradient(x)) is 1 everywhere, and its derivative is 1, not 0
        slope = torch_gradient(lambda x: importance_ratio(x, x, x < 0).sum(), [[-1.0, -2.0]])
        np.testing.assert_array_equal(slope, [[1.0, 1.0]])

    @pytest.mark.parametrize("gap", [100.0, 800.0, 1e30, -800.0])
    def test_huge_log_ratios_end_at_the_documented_cap(self, backend, gap):
        logp, old = backend.array([[0.0]]), backend.array([[-gap]])
        for level in ("token", "sequence", "trajectory"):
            ratio = float(importance_ratio(logp, old, backend.mask([[True]]), level=level)[0, 0])
            assert math.isfinite(ratio)
            assert ratio == pytest.approx(math.exp(math.copysign(LOG_RATIO_CAP, gap)), rel=1e-5)

    @pytest.mark.parametrize(
        ("logp", "old", "mask", "level", "says"),
        [
            ([[0.0]], [[0.0]], [[1]], "token", "mask must be boolean .* got dtype int64"),
            ([[0.0]], [[0.0]], [[1.0]], "token", "mask must be boolean .* got dtype float64"),
            ([0.0], [0.0], [True], "token", r"mask must have shape \(completions, tokens\), got \(1,\)"),
            (
                [[0.0, 0.0]],
                [[0.0, 0.0]],
                [[True]],
                "token",
                r"logp must have the shape of mask, \(1, 1\), got \(1, 2\)",
            ),
            ([[0.0]], [[0.0, 0.0]], [[True]], "token", r"old_logp must have the shape of logp, \(1, 1\), got \(1, 2\)"),
            ([[0.0]], [[0.0]], [[True]], "word", "level must be one of 'token', 'sequence', 'trajectory'; got 'word'"),
        ],
    )
    def test_bad_input_is_named(self, logp, old, mask, level, says):
        with pytest.raises(ValueError, match=says):
            importance_ratio(np.array(logp), np.array(old), np.array(mask), level=level)
