"""How sure a measured share is: Wilson's interval, for one answer a prompt and for several."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from grpo_core._arrays import Array, as_data, namespace, number, whole_number
from grpo_core.messages import InputError


def wilson_interval(successes: Array, trials: Array, *, confidence: float = 0.95) -> tuple[Array, Array]:
    r"""Return (low, high) of Wilson's score interval for a probability, from independent trials.

    centre (c + z^2 / 2) / (n + z^2), half width z sqrt(c (n - c) / n + z^2 / 4) / (n + z^2), with z the two-sided
    normal quantile of `confidence`. `successes` c and `trials` n broadcast; n may be an effective number of trials and
    c any real number up to it. Never empty and never outside [0, 1], also for 0 or n successes; no trials give (0, 1).
    Raises ValueError for successes outside 0..trials and a confidence outside (0, 1).
    Source: Wilson (1927), J. Am. Stat. Assoc. 22, 209.

    >>> low, high = wilson_interval(20, 20)
    >>> f"{float(low):.3f} to {float(high):.3f}"
    '0.839 to 1.000'
    """
    c, n = as_data(successes, "successes"), as_data(trials, "trials")
    xp = namespace(c, n)
    if not bool(xp.all((c >= 0) & (c <= n))):
        raise InputError(
            "successes must lie between 0 and trials, got {successes!r:.60} of {trials!r:.60}",
            successes=successes,
            trials=trials,
        )
    z = _quantile(confidence)
    centre = (c + z * z / 2.0) / (n + z * z)
    spread = c * (n - c) / xp.where(n > 0, n, xp.ones_like(n))
    half = z * (spread + z * z / 4.0) ** 0.5 / (n + z * z)
    zero = xp.zeros_like(centre)
    # Without a failure (or a success) that end is exactly 1 (or 0); rounding would leave a little less.
    return xp.where(c == 0, zero, centre - half), xp.where(c == n, zero + 1.0, centre + half)


def clustered_interval(correct: Array, *, samples: int, confidence: float = 0.95) -> tuple[float, float]:
    r"""Return (low, high) for the success probability of one sample, from several samples of each prompt.

    `correct` (N,): right ones among each prompt's `samples`. Samples of one prompt resemble each other, so N samples
    of one each tell more than N samples of one prompt: Wilson's interval is taken with n_eff = N samples / d trials,
    d = 1 + what the spread between prompts adds, kept in [1, samples]. If no prompt differs from another, each counts
    once (d = samples): nothing then shows how alike its samples are.
    Raises ValueError for no prompts, and counts that are not whole numbers in 0..samples.
    Source: design effect, Kish (1965), Survey Sampling.

    >>> [round(x, 3) for x in clustered_interval([4, 0, 4, 0, 4, 0, 4, 0], samples=4)]
    [0.215, 0.785]
    """
    m = whole_number(samples, "samples", low=1)
    c = np.asarray(as_data(correct, "correct"), dtype=float)
    if c.ndim != 1 or not c.size or not bool(np.all((c >= 0) & (c <= m) & (c == np.floor(c)))):
        raise InputError(
            "correct must be whole numbers between 0 and {m}, one for each prompt; got {correct!r:.80}",
            m=m,
            correct=correct,
        )
    p, count = float(c.mean()) / m, len(c)
    between = float(np.var(c / m, ddof=1)) / count if count > 1 else 0.0
    within = p * (1.0 - p) / (count * m)
    design = float(np.clip(between / within, 1.0, m)) if between > 0 and within > 0 else float(m)
    trials = count * m / design
    low, high = wilson_interval(p * trials, trials, confidence=confidence)
    return float(low), float(high)


def _quantile(confidence: float) -> float:
    level = number(confidence, "confidence", low=0.0, high=1.0, open_low=True)
    if level == 1.0:
        raise InputError("confidence must be below 1: only (0, 1) is certain")
    return NormalDist().inv_cdf(0.5 + level / 2.0)
