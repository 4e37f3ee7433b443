"""Any surrogate as a function of one ratio: its value, and the weight that its gradient gives to grad log pi."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo_core._arrays import Array, as_data, namespace, number
from grpo_core.messages import InputError
from grpo_core.objective import Objective
from grpo_core.surrogates import SURROGATES, SurrogateInputs
from grpo_core.token_gradients import PULLBACKS

ORDINARY = {"kl_cov": "unclipped", "clip_cov": "clip"}
"""What a surrogate that singles out some tokens does with all the others."""
_SINGLED_OUT: Mapping[str, Mapping[str, float]] = {
    "kl_cov": {"share": 1.0},
    "clip_cov": {"share": 1.0, "covariance_low": -math.inf, "covariance_high": math.inf},
}
_STEP = 1e-6  # of log r, for the slope of the value


@dataclass(frozen=True)
class SurrogateCurve:
    """A surrogate at many ratios, arrays (N,).

    `objective`: J, to be maximised. `gradient`: dJ / dlog pi as the trainer takes it, the weight of grad log pi, with
    what the surrogate stops treated as a constant. `value_slope`: dJ / dlog r of the value itself, nothing stopped; the
    two are equal unless the surrogate stops a gradient. `saturated`: where the gradient is exactly 0.
    """

    ratio: Array
    objective: Array
    gradient: Array
    value_slope: Array
    saturated: Array


def surrogate_curve(
    ratio: Array, advantages: Array, old_logp: Array, objective: Objective, *, singled_out: bool = False
) -> SurrogateCurve:
    r"""Return the surrogate of `objective` at each ratio, every entry a completion of one token.

    With one token all levels agree: token ratio, geometric mean and product are the same number. For a longer
    completion the gradient is that by the logarithm of the ratio that the surrogate reads: each token gets it whole
    from a product, 1/|o| of it from a geometric mean. `ratio` (N,), positive; `advantages` (N,); `old_logp` (N,), nats.
    `singled_out`: the branch of the tokens that KL-Cov penalises and Clip-Cov drops. Raises ValueError for a ratio that
    is not positive.

    >>> import numpy as np
    >>> r = np.array([0.5, 1.0, 2.0])
    >>> surrogate_curve(r, np.ones(3), -np.ones(3), Objective()).gradient.tolist()
    [0.5, 1.0, 0.0]
    """
    ratio, advantages, old = (
        as_data(x, name) for x, name in ((ratio, "ratio"), (advantages, "advantages"), (old_logp, "old_logp"))
    )
    xp = namespace(ratio, advantages, old)
    if not bool(xp.all(ratio > 0)):
        raise InputError("ratio must be positive; a probability that is not 0 has no ratio of 0")
    name, parameters = _branch(objective, singled_out)
    x = one_token_inputs(xp.log(ratio), advantages, old)
    value, slopes = SURROGATES[name].objective(x, **parameters), []
    for step in (_STEP, -_STEP):
        slopes.append(SURROGATES[name].objective(one_token_inputs(xp.log(ratio) + step, advantages, old), **parameters))
    gradient, flat = one_token_gradient(name, x, parameters)
    columns = (value, gradient, (slopes[0] - slopes[1]) / (2.0 * _STEP), flat)
    return SurrogateCurve(ratio, *(column[:, 0] for column in columns))


def _branch(objective: Objective, singled_out: bool) -> tuple[str, dict[str, Any]]:
    """Return the surrogate's name and hyperparameters for the tokens that are singled out, or for all the others."""
    name = objective.surrogate
    if name in ORDINARY and not singled_out:
        objective = objective.replace(surrogate=ORDINARY[name], options={}, delta=None)
        return objective.surrogate, objective.surrogate_parameters()
    return name, {**objective.surrogate_parameters(), **_SINGLED_OUT.get(name, {})}


def one_token_gradient(name: str, x: SurrogateInputs, parameters: Mapping[str, Any]) -> tuple[Array, Array]:
    """Return dJ / dlog pi of completions of one token each, and where it is 0 by clipping, (N, 1) both."""
    direct, to_ratio = PULLBACKS[name](x, namespace(x.ratio).ones_like(x.ratio), **parameters)
    return direct + to_ratio * x.ratio, SURROGATES[name].saturated(x, **parameters)


def one_token_inputs(log_ratio: Array, advantages: Array, old_logp: Array) -> SurrogateInputs:
    """Return what a surrogate reads of completions of one token each, (N, 1), from arrays (N,)."""
    xp = namespace(log_ratio)
    d, a, old = log_ratio[:, None], advantages[:, None], old_logp[:, None]
    return SurrogateInputs(old + d, old, d, xp.exp(d), a, xp.ones_like(d) > 0, xp.zeros_like(d))


def surrogate_options(objective: Objective, changed: Mapping[str, float]) -> dict[str, float]:
    """Return the options of `objective`'s surrogate with those of `changed` that it reads and that differ put in.

    Values are checked where the surrogate is computed; a name that the surrogate does not read is left out.
    """
    own = objective.surrogate_parameters()
    fields = objective.__dataclass_fields__
    new = {n: number(v, n) for n, v in changed.items() if n in own and n not in fields and v != own[n]}
    return {**objective.options, **new}
