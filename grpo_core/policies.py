"""Softmax policies small enough to list every outcome: expected gradients as exact sums, for one prompt.

NumPy float64 throughout: these are the yardsticks that estimators are held against. The parameters are logits;
gradients point towards more reward (ascent).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from grpo_core._arrays import Array, as_data, namespace, number, one_of, stop_gradient, whole_number
from grpo_core.advantages import AdvantageSpec, compute_advantages
from grpo_core.aggregation import token_weights
from grpo_core.credit import returns_to_go
from grpo_core.messages import InputError

SHARING = ("prefix", "position", "everywhere")
MAX_OUTCOMES = 4096
MAX_GROUPS = 500_000


def log_softmax(logits: Array) -> Array:
    """Return the log-probabilities of `logits` over the last axis, in nats; -inf logits stay -inf."""
    logits = as_data(logits, "logits")
    if logits.ndim < 1 or logits.shape[-1] < 1:
        raise InputError("logits must have shape (..., K) with K at least 1, got {shape}", shape=tuple(logits.shape))
    xp = namespace(logits)
    largest = xp.max(stop_gradient(logits), axis=-1, keepdims=True)
    if not bool(xp.all(xp.isfinite(largest))):
        raise InputError("logits must hold at least one finite value in every row, and no nan or +inf")
    shifted = logits - largest
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))


@dataclass(frozen=True)
class Outcomes:
    """Every outcome of one prompt under a softmax policy: K outcomes, up to T tokens each, D logits as parameters.

    `tokens`: each outcome's tokens. `mask` boolean (K, T). `logp` (K, T): each token's log-probability in nats, 0 on
    padding. `scores` (K, T, D): its gradient with respect to the logits. `states` int (K, T): the prefix in which the
    token was chosen, -1 on padding. `choices` (S, V): the token probabilities in each prefix. `truncated` boolean (K,):
    ended by the length limit instead of EOS.
    """

    tokens: tuple[tuple[str, ...], ...]
    mask: np.ndarray
    logp: np.ndarray
    scores: np.ndarray
    states: np.ndarray
    choices: np.ndarray
    truncated: np.ndarray

    @property
    def size(self) -> int:
        """The number of outcomes, K."""
        return len(self.tokens)

    @property
    def probs(self) -> np.ndarray:
        """The probability of each outcome, (K,)."""
        return np.exp(self.logp.sum(axis=1))

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each outcome, (K,)."""
        return self.mask.sum(axis=1)

    @property
    def greedy(self) -> int:
        """The outcome that takes the likeliest token at every step (the first one listed, if there are several)."""
        likeliest = np.log(self.choices.max(axis=1))[self.states]
        return int(np.argmax(np.all(~self.mask | (self.logp >= likeliest - 1e-12), axis=1)))


def softmax_outcomes(logits: Any, *, names: Sequence[str] | None = None) -> Outcomes:
    """Return the outcomes of a one-step policy: K actions with one logit each (log-probabilities are logits).

    Raises ValueError for logits that are not K finite numbers, or names of another number.

    >>> softmax_outcomes([0.0, 0.0]).scores[0, 0].tolist()
    [0.5, -0.5]
    """
    table = _finite(logits, "logits")
    if table.ndim != 1:
        raise InputError("logits must have shape (actions,), got {shape}", shape=table.shape)
    labels = [str(i) for i in range(table.size)] if names is None else list(names)
    paths: list[_Path] = [(((0, action),), False) for action in range(table.size)]
    return _outcomes(paths, table[None, :], np.zeros(1, dtype=int), labels)


def sequence_outcomes(
    logits: Any, *, tokens: Sequence[str], max_length: int, eos: str = "EOS", sharing: str = "prefix"
) -> Outcomes:
    """Return the outcomes of a sequence policy: tokens are drawn until `eos` or `max_length` tokens.

    `tokens` is the vocabulary, `eos` in it. `logits` hold one row of V for each prefix (`sharing` "prefix", rows by
    length and then in the vocabulary's order; `prefixes` lists them), for each position ("position", (max_length, V)),
    or one for all ("everywhere", (V,)). An outcome cut at `max_length` is truncated.
    Raises ValueError for another shape, an eos that is not in `tokens`, and trees of more than 4096 outcomes.

    >>> sequence_outcomes([0, 0], tokens=["a", "EOS"], max_length=2, sharing="everywhere").probs.round(3).tolist()
    [0.5, 0.25, 0.25]
    """
    one_of(sharing, "sharing", SHARING)
    known = prefixes(tokens, max_length=max_length, eos=eos)
    depth = np.array([len(prefix) for prefix in known])
    rows = {"prefix": np.arange(len(known)), "position": depth, "everywhere": np.zeros_like(depth)}[sharing]
    table = np.atleast_2d(_finite(logits, "logits"))
    if table.shape != (rows[-1] + 1, len(tokens)):
        raise InputError(
            "logits must have shape {wanted} for sharing {sharing!r}, got {shape}",
            wanted=(int(rows[-1]) + 1, len(tokens)),
            sharing=sharing,
            shape=table.shape,
        )
    return _outcomes(list(_paths(known, tokens, eos, max_length)), table, rows, list(tokens))


def prefixes(tokens: Sequence[str], *, max_length: int, eos: str = "EOS") -> list[tuple[str, ...]]:
    """Return every prefix in which a token is chosen, the empty one first, by length and in the vocabulary's order."""
    whole_number(max_length, "max_length", low=1)
    if len(set(tokens)) != len(tokens) or len(tokens) < 2 or eos not in tokens:
        raise InputError(
            "tokens must be at least two different ones with eos {eos!r} among them, got {tokens}",
            eos=eos,
            tokens=list(tokens),
        )
    if (len(tokens) - 1) ** max_length > MAX_OUTCOMES:
        raise InputError(
            "max_length {max_length} gives more than {max_outcomes} outcomes; use fewer tokens or steps",
            max_length=max_length,
            max_outcomes=MAX_OUTCOMES,
        )
    result: list[tuple[str, ...]] = [()]
    layer: list[tuple[str, ...]] = [()]
    for _ in range(max_length - 1):
        layer = [(*prefix, token) for prefix in layer for token in tokens if token != eos]
        result += layer
    return result


_Path = tuple[tuple[tuple[int, int], ...], bool]  # ((prefix, token), ...) and whether the length limit ended it


def _paths(known: list[tuple[str, ...]], tokens: Sequence[str], eos: str, max_length: int) -> Iterator[_Path]:
    index = {prefix: i for i, prefix in enumerate(known)}
    place = {token: v for v, token in enumerate(tokens)}
    for prefix in known:
        for token in tokens:
            whole = (*prefix, token)
            if token == eos or len(whole) == max_length:
                yield tuple((index[whole[:t]], place[whole[t]]) for t in range(len(whole))), token != eos


def _outcomes(paths: Sequence[_Path], table: np.ndarray, rows: np.ndarray, tokens: list[str]) -> Outcomes:
    """Return the outcomes of `paths` when prefix s draws its token from the logits `table[rows[s]]`."""
    if len(tokens) != table.shape[1]:
        raise InputError(
            "names must have one entry for each of the {actions} actions, got {got}",
            actions=table.shape[1],
            got=len(tokens),
        )
    width = max(len(path) for path, _ in paths)
    states, chosen = np.full((len(paths), width), -1), np.zeros((len(paths), width), dtype=int)
    for i, (path, _) in enumerate(paths):
        states[i, : len(path)], chosen[i, : len(path)] = zip(*path, strict=True)
    mask = states >= 0
    logp = log_softmax(table)
    k, t = np.nonzero(mask)
    row, token = rows[states[mask]], chosen[mask]
    scores = np.zeros((*mask.shape, *table.shape))
    scores[k, t, row] = np.eye(table.shape[1])[token] - np.exp(logp[row])
    token_logp = np.zeros(mask.shape)
    token_logp[mask] = logp[row, token]
    return Outcomes(
        tokens=tuple(tuple(tokens[v] for _, v in path) for path, _ in paths),
        mask=mask,
        logp=token_logp,
        scores=scores.reshape(*mask.shape, -1),
        states=states,
        choices=np.exp(logp[rows]),
        truncated=np.array([cut for _, cut in paths]),
    )


def _finite(values: Any, name: str) -> np.ndarray:
    """Return `values` as float64 NumPy; a tensor becomes a constant."""
    data = stop_gradient(as_data(values, name))
    result = np.asarray(getattr(data, "cpu", lambda: data)(), dtype=np.float64)
    if result.size == 0 or not np.all(np.isfinite(result)):
        raise InputError("{name} must be finite numbers, at least one; got {values!r:.80}", name=name, values=values)
    return result


def _rewards(rewards: Any, outcomes: Outcomes) -> np.ndarray:
    result = _finite(rewards, "rewards")
    if result.shape != (outcomes.size,):
        raise InputError(
            "rewards must have one number for each of the {size} outcomes, got {shape}",
            size=outcomes.size,
            shape=result.shape,
        )
    return result


# --- exact quantities of the policy -----------------------------------------------------------------------------------


def expected_reward(outcomes: Outcomes, rewards: Any) -> float:
    """Return J = sum_k p_k r_k; `rewards` (K,)."""
    return float(outcomes.probs @ _rewards(rewards, outcomes))


def true_gradient(outcomes: Outcomes, rewards: Any) -> np.ndarray:
    r"""Return the gradient of the expected reward with respect to the logits, (D,): sum_k p_k r_k grad log p_k.

    For a one-step policy this is p_j (r_j - sum_k p_k r_k). Source: REINFORCE, Williams 1992.

    >>> true_gradient(softmax_outcomes([0, 0, 0]), [0, 1, 10]).round(4).tolist()
    [-1.2222, -0.8889, 2.1111]
    """
    return (outcomes.probs * _rewards(rewards, outcomes)) @ outcomes.scores.sum(axis=1)


def prefix_values(outcomes: Outcomes, rewards: Any) -> np.ndarray:
    """Return the expected reward from the prefix of each token, V(s_t), as (K, T), 0 on padding.

    This is what a perfect critic predicts, and what continuations estimate.
    """
    values = outcomes.probs * _rewards(rewards, outcomes)
    mass, total = np.zeros(len(outcomes.choices)), np.zeros(len(outcomes.choices))
    k, t = np.nonzero(outcomes.mask)
    np.add.at(mass, outcomes.states[k, t], outcomes.probs[k])
    np.add.at(total, outcomes.states[k, t], values[k])
    mean = total / np.where(mass > 0, mass, 1.0)
    return np.where(outcomes.mask, mean[outcomes.states], 0.0)


def token_advantages(outcomes: Outcomes, rewards: Any) -> np.ndarray:
    """Return each token's exact advantage Q(s_t, a_t) - V(s_t), as (K, T), 0 on padding.

    Q is the value of the longer prefix, and the outcome's reward after its last token. Under the policy the advantages
    of the tokens of one prefix average to 0.
    """
    values = prefix_values(outcomes, rewards)
    after = np.concatenate([values[:, 1:], np.zeros((outcomes.size, 1))], axis=1)
    after[np.arange(outcomes.size), outcomes.lengths - 1] = _rewards(rewards, outcomes)
    return np.where(outcomes.mask, after - values, 0.0)


def score_mean(outcomes: Outcomes, *, aggregation: str = "sequence_sum", constant: float | None = None) -> np.ndarray:
    r"""Return E[sum_t w_t grad log pi(y_t)], (D,): how far a baseline of 1 moves the expected gradient.

    Zero when the weights do not depend on the outcome, which is why a baseline is free there. With ``sequence_mean`` it
    is grad E[1 / L]: the baseline over the length depends on the actions, and the argument breaks.

    >>> bool(abs(score_mean(softmax_outcomes([0.3, -1.0]))).max() < 1e-15)
    True
    """
    weighted = _weighted_scores(outcomes, aggregation=aggregation, constant=constant, sequences=1, tokens=None)
    return outcomes.probs @ weighted


def optimal_baseline(
    outcomes: Outcomes, rewards: Any, *, aggregation: str = "sequence_sum", constant: float | None = None
) -> float:
    r"""Return the constant that minimises the variance of (r - b) grad log p: E[r |g|^2] / E[|g|^2].

    The mean reward is another number unless all scores are equally long: it is a natural baseline, not the best one.
    Raises ValueError when every score is zero. `aggregation` weights the score as in `score_mean`.

    >>> round(optimal_baseline(softmax_outcomes([0.0, 0.0]), [5, 1]), 12)
    3.0
    """
    weighted = _weighted_scores(outcomes, aggregation=aggregation, constant=constant, sequences=1, tokens=None)
    size = outcomes.probs * (weighted**2).sum(axis=1)
    if size.sum() == 0:
        raise InputError("logits leave one outcome only: every score is zero, and no baseline is better than another")
    return float(size @ _rewards(rewards, outcomes) / size.sum())


def _weighted_scores(
    outcomes: Outcomes, *, aggregation: str, constant: float | None, sequences: int, tokens: float | None
) -> np.ndarray:
    """Return sum_t w_t score_t of each outcome, (K, D), in a batch of `sequences` completions and `tokens` tokens."""
    if aggregation == "token_mean" and tokens is None:
        return _weighted_scores(  # a batch of one completion: its own length
            outcomes, aggregation="sequence_mean", constant=None, sequences=sequences, tokens=None
        )
    weights = token_weights(
        outcomes.mask, mode=aggregation, constant=constant, sequences=sequences, tokens=tokens, dtype=np.float64
    )
    return np.einsum("kt,ktd->kd", weights, outcomes.scores)


# --- estimators -------------------------------------------------------------------------------------------------------


def cosine(first: Any, second: Any) -> float:
    """Return the cosine between two gradients (D,): 1 is the same direction, nan when either of them is zero.

    >>> cosine([1.0, 0.0], [1.0, 1.0]).__round__(6), cosine([0.0, 0.0], [1.0, 1.0])
    (0.707107, nan)
    """
    a, b = _finite(first, "first"), _finite(second, "second")
    lengths = float(np.linalg.norm(a)), float(np.linalg.norm(b))
    # Below rounding noise there is no direction to compare.
    if min(lengths) <= 1e-12 * max(1.0, *lengths):
        return math.nan
    return float(np.clip(a @ b / (lengths[0] * lengths[1]), -1.0, 1.0))


def angle(first: Any, second: Any) -> float:
    """Return the angle between two gradients (D,) in degrees, exact for small ones too; nan when either is zero.

    >>> angle([1.0, 0.0], [1.0, 1.0]).__round__(6), angle([1.0, 1e-9], [1.0, 0.0]) > 0
    (45.0, True)
    """
    if math.isnan(cosine(first, second)):
        return math.nan
    a, b = (x / np.linalg.norm(x) for x in (_finite(first, "first"), _finite(second, "second")))
    return math.degrees(2.0 * math.atan2(float(np.linalg.norm(a - b)), float(np.linalg.norm(a + b))))


@dataclass(frozen=True)
class GradientReport:
    """What an estimator's gradient is on average, and how it scatters, against the true gradient.

    `true`, `expected` and `coordinate_variance` (D,); `covariance` (D, D); `signal`: the probability that the estimate
    has an advantage other than 0; `groups`: how many groups were listed.
    """

    true: np.ndarray
    expected: np.ndarray
    covariance: np.ndarray
    signal: float
    groups: int

    @property
    def bias(self) -> np.ndarray:
        """Expected minus true gradient, (D,)."""
        return self.expected - self.true

    @property
    def variance(self) -> float:
        """The trace of the covariance: the mean squared distance of an estimate from its own mean."""
        return float(np.trace(self.covariance))

    @property
    def coordinate_variance(self) -> np.ndarray:
        """The variance of each coordinate, (D,)."""
        return np.diagonal(self.covariance).copy()

    @property
    def cosine(self) -> float:
        """The cosine between expected and true gradient: 1 is the right direction. nan when either is zero."""
        return cosine(self.true, self.expected)

    @property
    def scale(self) -> float:
        """The factor that brings the true gradient nearest to the expected one; nan when the true gradient is zero."""
        square = float(self.true @ self.true)
        return float(self.true @ self.expected) / square if square > 1e-24 else math.nan


def gradient_report(
    outcomes: Outcomes,
    rewards: Any,
    spec: AdvantageSpec,
    *,
    group_size: int,
    aggregation: str = "sequence_sum",
    constant: float | None = None,
    ordered: bool = False,
) -> GradientReport:
    r"""Return exact mean and covariance of the estimate sum_{i,t} w_{i,t} A_i grad log pi(y_{i,t}) from one group.

    The group's G outcomes are drawn independently from the policy, its advantages come from `compute_advantages` under
    `spec`, the weights from `token_weights` with mode `aggregation` over the group's tokens. `rewards` (K,), finite.
    Each group is a batch of its own: whatever an estimator pools over a batch, it pools over that group.
    "length_weighted" gets the outcomes' lengths, "greedy_baseline" the greedy outcome's reward.

    Groups that hold the same outcomes in another order give one estimate and are listed once, with their multinomial
    probability; `ordered` lists all K^G of them instead. Raises ValueError for shapes that do not fit and for more than
    500000 groups.

    >>> spec = AdvantageSpec(scale="none")
    >>> gradient_report(softmax_outcomes([0, 0, 0]), [0, 1, 10], spec, group_size=2).scale.__round__(12)
    0.5
    """
    listed = group_estimates(
        outcomes,
        rewards,
        spec,
        group_size=group_size,
        aggregation=aggregation,
        constant=constant,
        ordered=ordered,
    )
    return _group_report(outcomes, rewards, listed)


def baseline_report(
    outcomes: Outcomes,
    rewards: Any,
    *,
    baseline: float = 0.0,
    group_size: int = 1,
    aggregation: str = "sequence_sum",
    constant: float | None = None,
) -> GradientReport:
    r"""Return mean and covariance of the estimator with advantage r - baseline, a number fixed before sampling.

    `baseline` 0 is plain REINFORCE, `expected_reward` a perfect critic at the prompt, `optimal_baseline` the least
    variance. Otherwise as `gradient_report`.
    """
    listed = group_estimates(
        outcomes,
        rewards,
        None,
        baseline=baseline,
        group_size=group_size,
        aggregation=aggregation,
        constant=constant,
    )
    return _group_report(outcomes, rewards, listed)


@dataclass(frozen=True)
class GroupEstimates:
    """Every group that can be drawn, one a row: its outcomes, its chance, its advantages, and what it estimates.

    `groups` int (N, G), indices of outcomes; `chances` (N,); `advantages` (N, G); `estimates` (N, D).
    """

    groups: np.ndarray
    chances: np.ndarray
    advantages: np.ndarray
    estimates: np.ndarray


def group_estimates(
    outcomes: Outcomes,
    rewards: Any,
    spec: AdvantageSpec | None,
    *,
    group_size: int,
    baseline: float = 0.0,
    aggregation: str = "sequence_sum",
    constant: float | None = None,
    ordered: bool = False,
) -> GroupEstimates:
    """Return all groups with their estimates, of which `gradient_report` takes mean and covariance.

    `spec` None: the advantage is r - baseline, as in `baseline_report`. Otherwise as `gradient_report`.

    >>> spec = AdvantageSpec(scale="none")
    >>> listed = group_estimates(softmax_outcomes([0, 0]), [0, 1], spec, group_size=2)
    >>> listed.chances.tolist(), listed.estimates[1].tolist()
    ([0.25, 0.5, 0.25], [-0.25, 0.25])
    """
    rewards = _rewards(rewards, outcomes)
    groups, chances = enumerate_groups(outcomes.probs, group_size=group_size, ordered=ordered)
    if spec is None:
        advantages = rewards[groups] - number(baseline, "baseline")
    else:
        advantages = _group_by_group(outcomes, rewards, groups, spec)
    return GroupEstimates(groups, chances, advantages, _estimates(outcomes, groups, advantages, aggregation, constant))


def _group_report(outcomes: Outcomes, rewards: Any, listed: GroupEstimates) -> GradientReport:
    signal = np.any(listed.advantages != 0, axis=1)
    return _report(true_gradient(outcomes, rewards), listed.estimates, listed.chances, signal)


def token_report(outcomes: Outcomes, coefficients: Any, true: Any) -> GradientReport:
    """Return mean and covariance of sum_t c_t grad log pi(y_t) for one sampled outcome, against the gradient `true`.

    `coefficients` (K, T) may be anything a token is credited with: `token_advantages`, `prefix_values`, returns.
    """
    coefficients = _finite(coefficients, "coefficients")
    if coefficients.shape != outcomes.mask.shape:
        raise InputError(
            "coefficients must have shape {wanted}, got {shape}", wanted=outcomes.mask.shape, shape=coefficients.shape
        )
    coefficients = np.where(outcomes.mask, coefficients, 0.0)
    estimates = np.einsum("kt,ktd->kd", coefficients, outcomes.scores)
    return _report(_finite(true, "true"), estimates, outcomes.probs, np.any(coefficients != 0, axis=1))


def return_reports(outcomes: Outcomes, step_rewards: Any, *, gamma: float = 1.0) -> dict[str, GradientReport]:
    r"""Return the likelihood-ratio estimators of the discounted objective J = E[sum_t gamma^t r_t], by name.

    With G_t = sum_{k >= t} gamma^(k-t) r_k and z_t the score of token t: ``total_return`` credits every token with G_0,
    ``reward_to_go`` with gamma^t G_t (same mean: what was paid before cannot be changed), ``discount_dropped`` with G_t
    alone, which is not the gradient of J unless gamma is 1.

    `step_rewards` (K, T): what each token was paid, depending on nothing that comes after it; ValueError otherwise.
    """
    paid = _step_rewards(step_rewards, outcomes)
    to_go = returns_to_go(paid, gamma=gamma)
    discount = float(gamma) ** np.arange(paid.shape[1])
    whole = np.broadcast_to(to_go[:, :1], paid.shape)
    true = true_gradient(outcomes, to_go[:, 0])
    forms = {"total_return": whole, "reward_to_go": discount * to_go, "discount_dropped": to_go}
    return {name: token_report(outcomes, coefficients, true) for name, coefficients in forms.items()}


def _step_rewards(step_rewards: Any, outcomes: Outcomes) -> np.ndarray:
    paid = _finite(step_rewards, "step_rewards")
    if paid.shape != outcomes.mask.shape:
        raise InputError(
            "step_rewards must have shape {wanted}, got {shape}", wanted=outcomes.mask.shape, shape=paid.shape
        )
    paid = np.where(outcomes.mask, paid, 0.0)
    seen: dict[tuple[str, ...], float] = {}
    for tokens, row in zip(outcomes.tokens, paid, strict=True):
        for t in range(len(tokens)):
            if seen.setdefault(tokens[: t + 1], row[t]) != row[t]:
                raise InputError(
                    "step_rewards must not depend on later tokens, but differ after {tokens}", tokens=tokens[: t + 1]
                )
    return paid


def enumerate_groups(probs: Any, *, group_size: int, ordered: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return every group of G outcomes as indices (N, G), and the probability of each, (N,).

    Groups are multisets with their multinomial probability, or, if `ordered`, all K^G sequences.

    >>> groups, chances = enumerate_groups([0.5, 0.5], group_size=2)
    >>> groups.tolist(), chances.tolist()
    ([[0, 0], [0, 1], [1, 1]], [0.25, 0.5, 0.25])
    """
    probs, size = _finite(probs, "probs"), whole_number(group_size, "group_size", low=1)
    count = probs.size**size if ordered else math.comb(probs.size + size - 1, size)
    if count > MAX_GROUPS:
        raise InputError(
            "group_size {size} with {outcomes} outcomes gives {count} groups, more than "
            "{max_groups}; use a smaller group or fewer outcomes",
            size=size,
            outcomes=probs.size,
            count=count,
            max_groups=MAX_GROUPS,
        )
    if ordered:
        groups = np.indices((probs.size,) * size).reshape(size, -1).T
        return groups, probs[groups].prod(axis=1)
    groups = np.array(list(combinations_with_replacement(range(probs.size), size)), dtype=int)
    counts = _counts(groups, np.ones(groups.shape), probs.size).astype(int)
    factorials = np.array([math.factorial(i) for i in range(size + 1)], dtype=float)
    return groups, factorials[size] / factorials[counts].prod(axis=1) * probs[groups].prod(axis=1)


def _counts(groups: np.ndarray, values: np.ndarray, outcomes: int) -> np.ndarray:
    """Return the sum of `values` (N, G) over each group's copies of each outcome, (N, K)."""
    result = np.zeros((len(groups), outcomes))
    rows = np.arange(len(groups))
    for g in range(groups.shape[1]):
        result[rows, groups[:, g]] += values[:, g]
    return result


def _group_by_group(outcomes: Outcomes, rewards: np.ndarray, groups: np.ndarray, spec: AdvantageSpec) -> np.ndarray:
    """Return advantages (N, G) in which no group knows of another: each is a batch of its own."""
    scores, lengths, greedy = rewards[groups], outcomes.lengths[groups], rewards[outcomes.greedy]

    def advantages(r: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        return compute_advantages(r, spec, lengths=sizes, greedy_rewards=np.full(len(r), greedy)).advantages

    together = advantages(scores, lengths)
    # An estimator that pools over groups shows it by what one more, very different group does to the others.
    extreme = np.linspace(0.0, 1e3 * (1.0 + np.abs(scores).max()), scores.shape[1] + 1)[None, 1:]
    beside = advantages(np.concatenate([scores, extreme]), np.concatenate([lengths, lengths[:1]]))
    if np.array_equal(together, beside[:-1]):
        return together
    rows, where = np.unique(np.concatenate([scores, lengths], axis=1), axis=0, return_inverse=True)
    size = scores.shape[1]
    return np.concatenate([advantages(row[None, :size], row[None, size:]) for row in rows])[where]


def _estimates(
    outcomes: Outcomes, groups: np.ndarray, advantages: np.ndarray, aggregation: str, constant: float | None
) -> np.ndarray:
    """Return the gradient estimate of each group, (N, D)."""
    coefficients = _counts(groups, advantages, outcomes.size)
    sizes = outcomes.lengths[groups].sum(axis=1)
    if aggregation != "token_mean":
        sizes = np.zeros_like(sizes)  # no other weight looks at the group's number of tokens
    result = np.zeros((len(groups), outcomes.scores.shape[2]))
    for size in np.unique(sizes):
        weighted = _weighted_scores(
            outcomes, aggregation=aggregation, constant=constant, sequences=groups.shape[1], tokens=float(size)
        )
        result[sizes == size] = coefficients[sizes == size] @ weighted
    return result


def _report(true: np.ndarray, estimates: np.ndarray, chances: np.ndarray, signal: np.ndarray) -> GradientReport:
    expected = chances @ estimates
    centred = estimates - expected
    return GradientReport(
        true=true,
        expected=expected,
        covariance=centred.T @ (chances[:, None] * centred),
        signal=float(chances @ signal),
        groups=len(estimates),
    )
