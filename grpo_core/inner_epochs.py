"""Several updates on one batch of a small softmax policy: what happens to the ratios, clipped and not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grpo_core._arrays import number, whole_number
from grpo_core.kl import categorical_kl
from grpo_core.messages import InputError
from grpo_core.objective import Objective
from grpo_core.policies import log_softmax
from grpo_core.surrogate_curves import one_token_gradient, one_token_inputs


@dataclass(frozen=True)
class InnerEpochs:
    """The policy after 0, 1, ... mu updates on one batch of N samples from K actions.

    `logits` (mu + 1, K); `ratios` (mu + 1, N), of each sample to the policy that drew it; `kl` (mu + 1,), KL(old,
    current) in nats over all actions. For the update that starts from there: `drives` (mu, N), dJ / dlog pi of each
    sample; `saturated` (mu, N), whose clip has zeroed it; `gradients` (mu, K), of the objective by the logits.
    """

    logits: np.ndarray
    ratios: np.ndarray
    kl: np.ndarray
    drives: np.ndarray
    saturated: np.ndarray
    gradients: np.ndarray

    @property
    def clip_ratios(self) -> np.ndarray:
        """The share of samples without a gradient at each update, (mu,): what a trainer logs."""
        return self.saturated.mean(axis=1)


def inner_epochs(
    logits: Sequence[float] | np.ndarray,
    actions: Sequence[int],
    advantages: Sequence[float] | np.ndarray,
    objective: Objective,
    *,
    epochs: int,
    learning_rate: float,
) -> InnerEpochs:
    r"""Return `epochs` steps of gradient ascent on one fixed batch, theta <- theta + learning_rate * dJ/dtheta.

    J = (1/N) sum_i J_i is the policy term of `objective` (its surrogate with its clip range; KL, reduction and masks
    play no part, each sample is one token). `logits` (K,) are the old policy, `actions` (N,) what it drew, `advantages`
    (N,) what they are worth. The gradient is exact: dJ/dlogits = (1/N) sum_i dJ_i/dlog pi(a_i) (e_{a_i} - pi).
    Raises ValueError for shapes that do not fit, an action that does not exist, epochs below 1 or a learning rate that
    is not positive. Source: PPO arXiv:1707.06347 algorithm 1 (K epochs on one batch).

    >>> done = inner_epochs([0.0, 0.0], [0, 1], [1.0, -1.0], Objective(), epochs=2, learning_rate=0.5)
    >>> done.ratios.round(3).tolist()
    [[1.0, 1.0], [1.245, 0.755], [1.245, 0.755]]
    """
    start, chosen, own = _batch(logits, actions, advantages)
    count, rate = whole_number(epochs, "epochs", low=1), number(learning_rate, "learning_rate", low=0.0, open_low=True)
    name, parameters = objective.surrogate, objective.surrogate_parameters()
    old, picked = log_softmax(start), np.eye(start.size)[chosen]
    path, drives, flat, slopes, new = [start], [], [], [], old
    for _ in range(count):
        drive, saturated = one_token_gradient(name, one_token_inputs((new - old)[chosen], own, old[chosen]), parameters)
        slopes.append(drive[:, 0] @ (picked - np.exp(new)) / chosen.size)
        drives.append(drive[:, 0])
        flat.append(saturated[:, 0])
        path.append(path[-1] + rate * slopes[-1])
        new = log_softmax(path[-1])
    every = log_softmax(np.stack(path))
    kl = categorical_kl(np.broadcast_to(np.exp(old), every.shape), np.exp(every))
    ratios = np.exp(every[:, chosen] - old[chosen])
    return InnerEpochs(np.stack(path), ratios, kl, np.stack(drives), np.stack(flat), np.stack(slopes))


def _batch(logits: object, actions: object, advantages: object) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    start, chosen, own = np.asarray(logits, dtype=float), np.asarray(actions), np.asarray(advantages, dtype=float)
    if start.ndim != 1 or start.size < 2 or not np.isfinite(start).all():
        raise InputError("logits must be at least two finite numbers, got shape {shape}", shape=start.shape)
    if chosen.ndim != 1 or chosen.size < 1 or own.shape != chosen.shape or not np.isfinite(own).all():
        raise InputError(
            "actions and advantages must be (N,) and finite, got {shape} and {other}",
            shape=chosen.shape,
            other=own.shape,
        )
    if chosen.dtype.kind not in "iu" or chosen.min() < 0 or chosen.max() >= start.size:
        raise InputError("actions must be whole numbers from 0 to {last}", last=start.size - 1)
    return start, chosen, own
