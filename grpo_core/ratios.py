"""Log-probabilities to importance ratios, per token, per sequence or per trajectory."""

from __future__ import annotations

from grpo_core._arrays import Array, check_mask, check_same_shape, namespace, number, one_of, stop_gradient
from grpo_core.aggregation import sequence_mean, sequence_sum

LEVELS = ("token", "sequence", "trajectory")
LOG_RATIO_CAP = 80.0
"""exp(80) = 5.5e34 is the largest ratio: finite in float32, with room for an advantage and a sum. See
docs/decisions/log-ratio-cap.md; no run that learns comes near it."""


def importance_ratio(logp: Array, old_logp: Array, mask: Array, *, level: str = "token") -> Array:
    r"""Return the importance ratio of the current against the old policy, both log-probabilities in nats.

    With d_t = logp_t - old_logp_t on a completion o of |o| tokens:

    - ``token`` (B, T): exp(d_t)
    - ``sequence`` (B, 1): exp(sum_t d_t / |o|), the geometric mean of the token ratios (GSPO's s_i)
    - ``trajectory`` (B, 1): exp(sum_t d_t), the product of the token ratios

    `old_logp` carries no gradient: it is data, whatever graph it came from. Masked positions have d = 0. The exponent
    is kept within plus or minus 80 (`LOG_RATIO_CAP`), so that the result is always finite.

    Raises ValueError for shapes that differ, a mask that is not boolean (B, T), or an unknown level.
    Source: PPO arXiv:1707.06347 eq. 6; GSPO arXiv:2507.18071 eq. 7.

    >>> import numpy as np
    >>> logp = np.full((1, 1000), np.log(1.01))
    >>> ratios = [importance_ratio(logp, 0 * logp, logp > 0, level=x) for x in LEVELS]
    >>> [f"{float(r[0, 0]):.2f}" for r in ratios]
    ['1.01', '1.01', '20959.16']
    """
    return ratio_from_log(log_ratio(logp, old_logp, mask), mask, level=level)


def log_ratio(logp: Array, old_logp: Array, mask: Array) -> Array:
    """Return logp - old_logp per token, (B, T), and exactly 0 on masked positions whatever stands there."""
    mask = check_mask(mask)
    check_same_shape(mask, logp, "mask", "logp")
    check_same_shape(logp, old_logp, "logp", "old_logp")
    xp = namespace(logp, old_logp, mask)
    # Masked before the exponential: -inf on padding would otherwise give a nan gradient.
    return xp.where(mask, logp - stop_gradient(old_logp), xp.zeros_like(logp))


def ratio_from_log(log_ratios: Array, mask: Array, *, level: str = "token", cap: float = LOG_RATIO_CAP) -> Array:
    """Return the ratio at `level` from per-token log-ratios: (B, T) for "token", (B, 1) otherwise.

    `cap` bounds the exponent on both sides (verl and OpenRLHF use 20).
    """
    one_of(level, "level", LEVELS)
    cap = number(cap, "cap", low=0.0, open_low=True)
    pooled = log_ratios
    if level != "token":
        pooled = (sequence_mean if level == "sequence" else sequence_sum)(log_ratios, mask)
    xp = namespace(log_ratios)
    return xp.exp(xp.clip(pooled, -cap, cap))
