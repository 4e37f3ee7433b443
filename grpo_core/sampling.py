"""How completions are drawn: temperature and truncation, groups without signal, the budget, and pass@k."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grpo_core._arrays import Array, as_data, namespace, number, one_of, stop_gradient, whole_number
from grpo_core.advantages import mixed_group_probability
from grpo_core.kl import categorical_kl
from grpo_core.messages import InputError
from grpo_core.policies import log_softmax
from grpo_core.ratios import LOG_RATIO_CAP

RULES = ("keep", "resample", "retry")


def sampling_distribution(
    logits: Array, *, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Array:
    r"""Return the probabilities that tokens are really drawn with, over the last axis.

    softmax(logits / temperature), then only the `top_k` likeliest tokens (and ties with the last of them), then the
    smallest set of likeliest tokens that holds at least `top_p` of what is left; each step renormalises. `logits`
    (..., V); log-probabilities are logits.
    Raises ValueError for a temperature not above 0, top_k below 1 and top_p outside (0, 1].
    Source: top-p arXiv:1904.09751; the order is that of transformers and vLLM.

    >>> sampling_distribution(np.log([0.5, 0.3, 0.15, 0.05]), top_p=0.8).round(6).tolist()
    [0.625, 0.375, 0.0, 0.0]
    """
    logp = _tempered(log_softmax(logits), number(temperature, "temperature", low=0.0, open_low=True))
    xp = namespace(logp)
    lowest = xp.full_like(logp, -math.inf)
    if top_k is not None and whole_number(top_k, "top_k", low=1) < logp.shape[-1]:
        smallest = xp.sort(logp, axis=-1)[..., -int(top_k)]
        logp = log_softmax(xp.where(logp >= smallest[..., None], logp, lowest))
    if top_p is not None:
        top_p = number(top_p, "top_p", low=0.0, high=1.0, open_low=True)
        logp = log_softmax(xp.where(_nucleus(xp.exp(logp), top_p), logp, lowest))
    return xp.exp(logp)


def _tempered(logp: Array, temperature: float) -> Array:
    if temperature == 1.0:
        return logp
    # The likeliest token goes to 0 first, so that a tiny temperature stays finite (float32 has nothing below 1e-30).
    below = logp - namespace(logp).max(stop_gradient(logp), axis=-1, keepdims=True)
    with np.errstate(over="ignore"):
        return log_softmax(below / max(temperature, 1e-30))


def _nucleus(probs: Array, top_p: float) -> Array:
    """Return which tokens are among the likeliest that together reach top_p, as booleans."""
    xp = namespace(probs)
    order = xp.argsort(probs, axis=-1, descending=True, stable=True)
    ranked = xp.take_along_axis(probs, order, axis=-1)
    before = xp.cumulative_sum(ranked, axis=-1) - ranked
    # A set that reaches top_p up to rounding is enough: 0.5 + 0.3 must count as 0.8. The likeliest token always stays.
    enough = max(top_p - (1e-6 if probs.dtype == xp.float32 else 1e-12), 1e-30)
    kept = before < enough
    return xp.take_along_axis(kept, xp.argsort(order, axis=-1), axis=-1)


@dataclass(frozen=True)
class SamplingMismatch:
    """What happens when completions come from one distribution and the ratio divides by another.

    `sampled` (..., V): what tokens were drawn with; `trained` (..., V): what the trainer takes them to be drawn with;
    `ratio` (..., V): trained / sampled, 0 where nothing is ever drawn; `mean_log_ratio` (...): its average logarithm
    over the drawn tokens, in nats, never positive.
    """

    sampled: Array
    trained: Array
    ratio: Array
    mean_log_ratio: Array

    @property
    def mean_ratio(self) -> Array:
        """The average ratio over drawn tokens, (...): the mass that the trainer gives to what can be drawn."""
        return namespace(self.ratio).sum(self.sampled * self.ratio, axis=-1)

    def sequence_ratio(self, tokens: int) -> Array:
        """Return the typical product of ratios over `tokens` tokens, exp(tokens * mean_log_ratio), (...)."""
        xp = namespace(self.mean_log_ratio)
        exponent = whole_number(tokens, "tokens", low=0) * self.mean_log_ratio
        return xp.exp(xp.clip(exponent, -LOG_RATIO_CAP, LOG_RATIO_CAP))


def sampling_mismatch(
    logits: Array,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    trained_temperature: float = 1.0,
) -> SamplingMismatch:
    r"""Return the ratios, at equal weights, of softmax(logits / trained_temperature) over `sampling_distribution`.

    With the same weights on both sides an honest ratio is 1 everywhere. Dividing full log-probabilities by top-p ones
    gives the kept mass on every token instead, and its power over a completion: drift without any training.

    >>> mismatch = sampling_mismatch(np.log([0.5, 0.3, 0.15, 0.05]), top_p=0.8)
    >>> mismatch.ratio.round(6).tolist(), f"{float(mismatch.sequence_ratio(100)):.3g}"
    ([0.8, 0.8, 0.0, 0.0], '2.04e-10')
    """
    sampled = sampling_distribution(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    trained = sampling_distribution(logits, temperature=trained_temperature)
    xp = namespace(sampled)
    drawn = sampled > 0
    ratio = xp.where(drawn, trained / xp.where(drawn, sampled, xp.ones_like(sampled)), xp.zeros_like(sampled))
    return SamplingMismatch(sampled, trained, ratio, -categorical_kl(sampled, trained))


@dataclass(frozen=True)
class DynamicSampling:
    """What it costs to fill a batch with mixed groups, and what that does to each prompt's pull.

    `mixed` (N,): the probability that a group of each prompt is mixed. `draws`: expected groups drawn until the batch
    is full; `draws_std`: its standard deviation; `completions`: expected completions, G for each draw. `share` (N,):
    each prompt's expected share of the groups that train. `factor` (N,): by how much each prompt's expected gradient is
    multiplied, compared with training on every group.
    """

    mixed: np.ndarray
    draws: float
    draws_std: float
    completions: float
    share: np.ndarray
    factor: np.ndarray

    @property
    def only_rescales(self) -> bool:
        """True if all prompts that can give a mixed group get one factor, so that the direction stays."""
        factors = self.factor[self.mixed > 0]
        return bool(factors.size == 0 or np.allclose(factors, factors[0], rtol=1e-12, atol=0.0))


def dynamic_sampling(
    p: Array,
    weights: Sequence[float] | None = None,
    *,
    group_size: int,
    batch_groups: int,
    rule: str = "resample",
) -> DynamicSampling:
    r"""Return the cost and the effect of asking for `batch_groups` mixed groups.

    `p` (N,): each prompt's probability of a right completion, independent draws; `weights` (N,): how often each prompt
    is drawn (default: alike). With m_x the probability of a mixed group of prompt x and m its average:

    - ``keep``: train on every group. Groups without signal cost their completions and pull nothing
    - ``resample``: a group without signal is replaced by a new draw, prompt included (DAPO). The draws are negative
      binomial, batch_groups / m on average; every prompt's pull grows by the same 1 / m, as long as all other terms of
      the loss are zero for dropped groups and kept groups weigh alike
    - ``retry``: the same prompt is sampled again until its group is mixed. Every prompt then trains equally often, its
      pull grows by its own 1 / m_x: rare successes and rare failures weigh more

    A prompt that is never mixed makes ``retry`` endless (draws inf), one in which none is mixed also ``resample``.
    Raises ValueError for p outside [0, 1], weights that do not fit, sizes below 1 and an unknown rule.
    Source: DAPO arXiv:2503.14476 sec. 3.2.

    >>> cost = dynamic_sampling([0.5, 1.0], group_size=4, batch_groups=7)
    >>> round(cost.draws, 9), cost.share.tolist(), cost.only_rescales
    (16.0, [1.0, 0.0], True)
    """
    wanted, size = whole_number(batch_groups, "batch_groups", low=1), whole_number(group_size, "group_size", low=1)
    one_of(rule, "rule", RULES)
    mixed = np.atleast_1d(np.asarray(mixed_group_probability(p, size), dtype=float))
    weight = _prompt_weights(weights, len(mixed))
    if rule == "keep":
        draws, variance, share, factor = float(wanted), 0.0, weight, np.ones_like(mixed)
    elif rule == "resample":
        rate = float(weight @ mixed)
        draws, variance = wanted * _inverse(rate), wanted * (1.0 - rate) * _inverse(rate) ** 2
        share = weight * mixed / rate if rate > 0 else np.zeros_like(mixed)
        factor = np.full_like(mixed, _inverse(rate))
    else:
        factor = np.array([_inverse(m) for m in mixed])
        drawn = weight > 0  # a prompt that is never drawn does not wait either
        tries, square = factor[drawn], (2.0 - mixed[drawn]) * factor[drawn] ** 2  # geometric: E[n], E[n^2]
        draws, share = wanted * float(weight[drawn] @ tries), weight
        variance = math.inf if math.isinf(draws) else wanted * float(weight[drawn] @ square) - draws**2 / wanted
    return DynamicSampling(mixed, draws, math.sqrt(max(variance, 0.0)), draws * size, share, factor)


def _prompt_weights(weights: Sequence[float] | None, count: int) -> np.ndarray:
    if weights is None:
        return np.full(count, 1.0 / count)
    values = np.array([number(w, "weights", low=0.0) for w in weights])
    if len(values) != count or values.sum() == 0:
        raise InputError(
            "weights must have one number for each of the {count} prompts, not all 0; got {weights!r:.80}",
            count=count,
            weights=weights,
        )
    return values / values.sum()


def _inverse(x: float) -> float:
    return 1.0 / float(x) if x > 0 else math.inf


def fill_probability(mixed: float, *, batch_groups: int, draws: int) -> float:
    r"""Return the probability that `draws` groups hold at least `batch_groups` mixed ones, each mixed with `mixed`.

    P(Binomial(draws, mixed) >= batch_groups): what a limit on refills costs.

    >>> round(fill_probability(0.5, batch_groups=2, draws=3), 12)
    0.5
    """
    rate = number(mixed, "mixed", low=0.0, high=1.0)
    wanted, tried = whole_number(batch_groups, "batch_groups", low=0), whole_number(draws, "draws", low=0)
    if wanted > tried:
        return 0.0
    if rate in (0.0, 1.0):
        return float(rate == 1.0 or wanted == 0)
    logs = [_log_choose(tried, i) + i * math.log(rate) + (tried - i) * math.log1p(-rate) for i in range(tried + 1)]
    short, enough = math.fsum(map(math.exp, logs[:wanted])), math.fsum(map(math.exp, logs[wanted:]))
    return enough / (short + enough)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


@dataclass(frozen=True)
class BudgetSplit:
    """One way to spend a budget of completions: `prompts` groups of `group_size`.

    `mixed`: the expected share of groups with signal; `mixed_groups`: their expected number; `signal_completions`: the
    completions in them; `no_signal`: the probability that the whole batch has none; `unused`: completions left over;
    `self_inclusion`: (G - 1) / G, by which a mean that contains the sample shrinks the gradient.
    """

    group_size: int
    prompts: int
    unused: int
    mixed: float
    mixed_groups: float
    signal_completions: float
    no_signal: float
    self_inclusion: float


def budget_splits(
    p: Array, weights: Sequence[float] | None = None, *, budget: int, group_sizes: Sequence[int]
) -> list[BudgetSplit]:
    """Return what each group size makes of one budget of completions, for prompts drawn at random from `p`.

    `p` (N,): success probabilities of the prompts, `weights` (N,): how often each is drawn. A larger group is mixed
    more often, but there are fewer of them. Raises ValueError for sizes above the budget or below 1.

    >>> [round(s.mixed_groups, 3) for s in budget_splits([0.2], budget=16, group_sizes=[2, 4, 8])]
    [2.56, 2.355, 1.664]
    """
    total = whole_number(budget, "budget", low=1)
    result = []
    for value in group_sizes:
        size = whole_number(value, "group_sizes", low=1)
        if size > total:
            raise InputError(
                "group_sizes must not exceed the budget of {total} completions, got {size}", total=total, size=size
            )
        chances = np.atleast_1d(np.asarray(mixed_group_probability(p, size), dtype=float))
        mixed, prompts = float(_prompt_weights(weights, len(chances)) @ chances), total // size
        groups = prompts * mixed
        none = (1.0 - mixed) ** prompts
        result.append(BudgetSplit(size, prompts, total % size, mixed, groups, groups * size, none, (size - 1) / size))
    return result


def pass_at_k(samples: int, correct: Array, *, k: int) -> Array:
    r"""Return the unbiased estimate of pass@k from `samples` completions of which `correct` are right.

    1 - C(n - c, k) / C(n, k): the share of k-subsets that hold a right one. `correct` may be an array (one entry for
    each prompt). Computed as a product of ratios below 1, so that no binomial overflows.
    Raises ValueError for k above the number of samples and counts outside 0..samples.
    Source: Codex arXiv:2107.03374 eq. 1.

    >>> [float(pass_at_k(4, 1, k=k)) for k in (2, 4)]
    [0.5, 1.0]
    """
    n, size = whole_number(samples, "samples", low=1), whole_number(k, "k", low=1)
    if size > n:
        raise InputError(
            "k must not exceed the {n} samples, got {k}: there is no unbiased estimate from fewer samples", n=n, k=k
        )
    c = _correct(correct, n)
    xp = namespace(c)
    wrong = xp.ones_like(c)
    for i in range(size):
        wrong = wrong * xp.clip(n - c - i, 0.0, None) / (n - i)
    return 1.0 - wrong


def best_of_k_bootstrap(samples: int, correct: Array, *, k: int) -> Array:
    r"""Return 1 - (1 - c / n)^k, the chance that k draws *with* replacement hold a right completion.

    This is what a bootstrap of best@k tends to. It is below pass@k from the second draw on, and below 1 even when all n
    completions are drawn. Arguments as in `pass_at_k`, with any k.
    Source: verl 0.9.1 validation metrics.

    >>> [round(float(best_of_k_bootstrap(4, 1, k=k)), 6) for k in (2, 4)]
    [0.4375, 0.683594]
    """
    n = whole_number(samples, "samples", low=1)
    return 1.0 - (1.0 - _correct(correct, n) / n) ** whole_number(k, "k", low=1)


def _correct(correct: Array, samples: int) -> Array:
    c = as_data(correct, "correct")
    xp = namespace(c)
    if not bool(xp.all((c >= 0) & (c <= samples) & (c == xp.floor(c)))):
        raise InputError(
            "correct must hold whole numbers between 0 and the {samples} samples, got {correct!r:.80}",
            samples=samples,
            correct=correct,
        )
    return c
