"""Masks to per-token weights: a loss is `sum(weights * terms)`. The only module that reduces over tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grpo_core._arrays import Array, check_mask, check_same_shape, namespace, number, one_of
from grpo_core.messages import InputError

MODES = ("sequence_mean", "token_mean", "constant", "sequence_sum", "token_sum")


def token_weights(
    mask: Array,
    *,
    mode: str,
    constant: float | None = None,
    sequences: float | None = None,
    tokens: float | None = None,
    scale: float = 1.0,
    dtype: Any = None,
) -> Array:
    r"""Return the weight of each token, so that a loss is `sum(weights * terms)`.

    With m the mask, |o_i| the tokens of completion i, B the completions and N the tokens of the batch:

    - ``sequence_mean``: m / (|o_i| B), the mean over completions of each completion's mean (GRPO)
    - ``token_mean``: m / N, every token alike (DAPO)
    - ``constant``: m / (B constant), a length that does not depend on the sample (Dr. GRPO)
    - ``sequence_sum``: m / B, the mean over completions of each completion's sum (LUSPO)
    - ``token_sum``: m

    `mask` is boolean (B, T). `sequences` and `tokens` replace B and N when this batch is one part of a larger one
    (micro-batches, ranks); `scale` multiplies every weight. An empty completion has weight 0 and still counts in B,
    as in TRL 1.16 and in GRPO's 1/G; a batch without a token has weights 0, not 0/0.
    `dtype` is the weights' dtype (default: the namespace's default float).

    Raises ValueError for a mask that is not boolean (B, T), an unknown mode, or a missing or non-positive constant.
    Source: GRPO arXiv:2402.03300 eq. 3; Dr. GRPO arXiv:2503.20783 sec. 3; DAPO arXiv:2503.14476 eq. 8.

    >>> import numpy as np
    >>> mask = np.array([[True, False, False], [True, True, True]])
    >>> token_weights(mask, mode="sequence_mean").tolist()
    [[0.5, 0.0, 0.0], [0.16666666666666666, 0.16666666666666666, 0.16666666666666666]]
    """
    mask = check_mask(mask)
    one_of(mode, "mode", MODES)
    xp = namespace(mask)
    m = xp.astype(mask, dtype if dtype is not None else xp.asarray(1.0).dtype)
    count = number(mask.shape[0] if sequences is None else sequences, "sequences", low=0.0)
    return m * (number(scale, "scale") / _divisor(m, mode, constant, max(count, 1.0), tokens))


def _divisor(m: Array, mode: str, constant: float | None, sequences: float, tokens: float | None) -> Any:
    """Return what each token's weight is divided by: a number, or an array (B, 1)."""
    xp = namespace(m)
    if mode == "sequence_mean":
        return xp.clip(xp.sum(m, axis=1, keepdims=True), 1.0, None) * sequences
    if mode == "token_mean":
        return xp.clip(xp.sum(m), 1.0, None) if tokens is None else max(number(tokens, "tokens", low=0.0), 1.0)
    if mode == "constant":
        if constant is None:
            raise InputError("constant must be given for mode 'constant', for instance the longest completion allowed")
        return number(constant, "constant", low=0.0, open_low=True) * sequences
    return sequences if mode == "sequence_sum" else 1.0


def mean_of_means_weights(mask: Array, parts: Sequence[int]) -> Array:
    r"""Return the token weights of a mean over parts of each part's own token mean: m / (P N_part).

    `mask` boolean (B, T); `parts[i]` names the part (micro-batch or rank) that completion i is in, P is the number of
    parts and N_part the tokens of one. A part without a token adds nothing and still counts in P. One part, or parts of
    equally many tokens, give the token mean. Source: TRL 1.16 loss_type "bnpo" under gradient accumulation and DDP.

    >>> import numpy as np
    >>> mean_of_means_weights(np.array([[True, False, False], [True, True, True]]), [0, 1]).sum(axis=1).tolist()
    [0.5, 0.5]
    """
    mask = check_mask(mask)
    names = [int(part) for part in parts]
    if len(names) != mask.shape[0]:
        raise InputError(
            "parts must name one part for each of the {count} completions, got {got}",
            count=mask.shape[0],
            got=len(names),
        )
    xp = namespace(mask)
    m = xp.astype(mask, xp.asarray(1.0).dtype)
    counts = xp.sum(m, axis=1)
    tokens = [xp.sum(xp.stack([counts[i] for i, other in enumerate(names) if other == part])) for part in names]
    return m / (xp.clip(xp.stack(tokens), 1.0, None)[:, None] * float(len(set(names))))


def weighted_sum(terms: Array, weights: Array) -> Array:
    """Return sum(weights * terms) as a scalar; a term of weight 0 never matters, not even when it is inf or nan.

    `terms` and `weights` have one shape.
    """
    check_same_shape(weights, terms, "weights", "terms")
    return namespace(terms, weights).sum(weighted_terms(terms, weights))


def weighted_terms(terms: Array, weights: Array) -> Array:
    """Return weights * terms token by token, with exactly 0 where the weight is 0."""
    xp = namespace(terms, weights)
    zero = xp.zeros_like(terms)
    counted = weights != 0
    return xp.where(counted, xp.where(counted, terms, zero) * weights, zero)


def sequence_sum(values: Array, mask: Array) -> Array:
    """Return the sum over each completion's own tokens, shape (B, 1)."""
    xp = namespace(values, mask)
    return xp.sum(xp.where(mask, values, xp.zeros_like(values)), axis=1, keepdims=True)


def sequence_mean(values: Array, mask: Array) -> Array:
    """Return the mean over each completion's own tokens, shape (B, 1); 0 for an empty completion."""
    xp = namespace(values, mask)
    counts = xp.sum(xp.astype(mask, values.dtype), axis=1, keepdims=True)
    return sequence_sum(values, mask) / xp.clip(counts, 1.0, None)


def masked_mean(values: Array, mask: Array) -> Array:
    """Return the pooled mean of `values` where `mask` is True, as a scalar; 0 when there is no such position.

    Pooled: every token counts once, whatever completion, micro-batch or rank it sits in.
    """
    xp = namespace(values, mask)
    values = xp.where(mask, values, xp.zeros_like(values))
    return xp.sum(values) / xp.clip(xp.sum(xp.astype(mask, values.dtype)), 1.0, None)


def pooled_mean(sums: Array, counts: Array) -> Array:
    """Return the mean over parts (micro-batches, ranks) from each part's sum and count: sum(sums) / sum(counts).

    The mean of the parts' own means is something else as soon as the counts differ.

    >>> import numpy as np
    >>> float(pooled_mean(np.array([3.0, 3.0]), np.array([12.0, 4.0])))
    0.375
    """
    xp = namespace(sums, counts)
    return xp.sum(sums) / xp.clip(xp.sum(counts), 1.0, None)
