"""The update: groups and advantages in, new weights out. The loss is grpo_core.loss_terms and nothing else."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from grpo_core import GroupBatch, Objective, batch_statistics, loss_terms
from grpo_core.live.engines import Engine
from grpo_core.live.rollout import Rollout
from grpo_core.messages import InputError, Spoken


class DivergedError(Spoken, ArithmeticError):
    """The loss or its gradient is no longer a finite number; the weights stand as they were before that update."""


class Optimizer:
    """AdamW over all weights as one vector, so that a step is a handful of operations.

    The model's parameters become views of one tensor, and so do their gradients. betas 0.9 and 0.99, eps 1e-8, no
    weight decay. Parameters in half precision are rounded copies of float32 weights: a step is often smaller than the
    distance of two neighbouring bfloat16 numbers, and would be lost.
    """

    def __init__(self, model: Any, *, learning_rate: float) -> None:
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        flat = torch.cat([parameter.detach().flatten() for parameter in parameters])
        self.weights = torch.nn.Parameter(flat.float() if flat.dtype.itemsize < 4 else flat)
        self.weights.grad = torch.zeros_like(self.weights)
        rounded = flat.dtype != self.weights.dtype
        self._rounded = (flat, torch.zeros_like(flat)) if rounded else None
        values, gradients = self._rounded or (self.weights.data, self.weights.grad)
        start = 0
        for parameter in parameters:
            end = start + parameter.numel()
            parameter.data = values[start:end].view(parameter.shape)
            parameter.grad = gradients[start:end].view(parameter.shape)
            start = end
        fused = self.weights.device.type in ("cpu", "cuda")
        self._adam = torch.optim.AdamW(
            [self.weights], lr=learning_rate, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0, fused=fused
        )

    @property
    def gradient(self) -> Tensor:
        """The gradient of all weights as one vector."""
        assert self.weights.grad is not None
        return self.weights.grad

    def zero(self) -> None:
        """Set the gradient to 0."""
        self.gradient.zero_()
        if self._rounded:
            self._rounded[1].zero_()

    def snapshot(self) -> dict[str, Tensor]:
        """Give the weights and AdamW's state as tensors; before the first step there are only weights."""
        return {"weights": self.weights.detach(), **self._adam.state.get(self.weights, {})}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over a snapshot, in place; ValueError when it belongs to another model."""
        if tensors["weights"].shape != self.weights.shape:
            raise InputError(
                "it holds {got} numbers, the model learns {wanted}",
                got=tensors["weights"].numel(),
                wanted=self.weights.numel(),
            )
        with torch.no_grad():
            self.weights.copy_(tensors["weights"])
            self._round()
        own = {name: tensor for name, tensor in tensors.items() if name != "weights"}
        state = {0: own} if own else {}
        self._adam.load_state_dict({**self._adam.state_dict(), "state": state})

    def step(self, *, learning_rate: float, max_norm: float) -> float:
        """Scale the gradient down to max_norm where it is longer, move the weights, and give its length before."""
        if self._rounded:
            self.gradient.copy_(self._rounded[1])
        norm = float(torch.linalg.vector_norm(self.gradient))
        if not math.isfinite(norm):
            raise DivergedError("the gradient's norm is {norm}", norm=norm)
        if norm > max_norm:
            self.gradient.mul_(max_norm / (norm + 1e-6))
        self._adam.param_groups[0]["lr"] = learning_rate
        self._adam.step()
        self._round()
        return norm

    @torch.no_grad()
    def _round(self) -> None:
        """Give the model its weights, where it holds rounded ones."""
        if self._rounded:
            self._rounded[0].copy_(self.weights)


_PROPORTIONAL = frozenset(
    ("clip", "policy_gradient", "unclipped", "cispo", "sapo", "vespo", "gmpo", "dppo_tv", "dppo_kl")
)
"""Surrogates that are the advantage times something of the completion's own: without advantage no gradient."""


@dataclass(frozen=True)
class UpdateInputs:
    """What an update needs beside the rollout: advantages (B,) or (B, T), and where the objective asks for them the
    reference's log-probabilities (B, T) and random numbers in [0, 1) (B, T).

    shared_graph: build in the mistake of the same name, see faults.py.
    """

    advantages: Tensor
    ref_logp: Tensor | None = None
    uniform: Tensor | None = None
    shared_graph: bool = False


def informative_groups(advantages: Tensor, group_size: int, objective: Objective) -> Tensor:
    """Which groups an update must forward, as indices.

    Without a KL term a completion without advantage gives no gradient, so that a group in which no completion has
    one can be left out of the forward pass. It still counts in every mean. All groups are needed with beta above
    0, with an entropy bonus, and for surrogates that look at more than the advantage.
    """
    all_needed = objective.beta > 0 or objective.entropy_coefficient != 0 or objective.surrogate not in _PROPORTIONAL
    return ((advantages.reshape(len(advantages) // group_size, -1) != 0).any(1) | all_needed).nonzero().squeeze(1)


def policy_batch(
    engine: Engine,
    rollout: Rollout,
    inputs: UpdateInputs,
    *,
    kept: Tensor,
    plan: Any,
    old_logp: Tensor | None,
    temperature: float,
) -> GroupBatch:
    """Give the batch of all completions, with gradients on those of the kept groups.

    The others stand there with the log-probabilities they were sampled with: ratio 1, advantage 0. old_logp None
    means that the policy has not moved since sampling: its log-probabilities are then the current ones without
    gradient, so that the ratio is exactly 1.
    """
    logp = _with_gradients(rollout, kept, engine.logps(plan, temperature=temperature)) if len(kept) else rollout.logp
    if inputs.shared_graph:
        # The core never lets gradients into old_logp. With both sides in one graph the ratio's slopes cancel, so that
        # nothing is left of it but its value, 1: that is what constants on both sides give.
        logp, old_logp = logp.detach(), None
    return GroupBatch(
        logp=logp,
        old_logp=logp.detach() if old_logp is None else old_logp,
        ref_logp=inputs.ref_logp,
        mask=rollout.completions.mask,
        advantages=inputs.advantages,
        entropy=rollout.entropy,
        truncated=~rollout.finished,
        uniform=inputs.uniform,
    )


def _with_gradients(rollout: Rollout, kept: Tensor, fresh: Tensor) -> Tensor:
    """Put the log-probabilities of the kept groups' completions into those that were sampled, (B, T)."""
    size, logp = rollout.completions.group_size, rollout.logp
    if fresh.shape == logp.shape:
        return fresh
    fresh = torch.nn.functional.pad(fresh, (0, logp.shape[1] - fresh.shape[1]))
    rows = (kept[:, None] * size + torch.arange(size, device=kept.device)).flatten()
    return logp.index_copy(0, rows, fresh)


def update(
    engine: Engine,
    optimizer: Optimizer,
    rollout: Rollout,
    inputs: UpdateInputs,
    objective: Objective,
    *,
    inner_epochs: int,
    learning_rate: float,
    max_grad_norm: float,
    temperature: float,
    plan: Any = None,
) -> dict[str, float]:
    """Make inner_epochs optimizer steps on one batch; give loss, grad_norm and the core's batch statistics.

    Every number is the mean over the inner epochs. plan: the engine's for the whole rollout, where there is one.
    Raises DivergedError, before the weights move, when the loss or the gradient is not finite. A batch in which nothing
    trains still takes its optimizer steps, as in other trainers: momentum goes on moving the weights.
    """
    kept = informative_groups(inputs.advantages, rollout.completions.group_size, objective)
    plan = _plan(engine, rollout, kept, plan)
    old_logp: Tensor | None = None
    totals: dict[str, float] = {}
    for _ in range(inner_epochs):
        batch = policy_batch(engine, rollout, inputs, kept=kept, plan=plan, old_logp=old_logp, temperature=temperature)
        old_logp = batch.old_logp
        terms = loss_terms(batch, objective)
        loss = _differentiate(terms.loss, optimizer)
        norm = optimizer.step(learning_rate=learning_rate, max_norm=max_grad_norm)
        with torch.no_grad():
            found = {"loss": loss, "grad_norm": norm, **batch_statistics(batch, terms, objective)}
        totals = {name: totals.get(name, 0.0) + value / inner_epochs for name, value in found.items()}
    return totals


def _plan(engine: Engine, rollout: Rollout, kept: Tensor, whole: Any) -> Any:
    """Lay the kept groups out, None without any; the plan of the whole rollout does where all are kept."""
    if len(kept) == len(rollout.prompts.ids) and whole is not None:
        return whole
    return engine.plan(rollout.prompts.select(kept), rollout.completions.groups(kept)) if len(kept) else None


def _differentiate(loss: Tensor, optimizer: Optimizer) -> float:
    """Leave the gradient of a loss with the optimizer and give the loss; DivergedError when it is not finite."""
    value = float(loss.detach())
    if not math.isfinite(value):
        raise DivergedError("the loss is {loss}", loss=value)
    optimizer.zero()
    if loss.requires_grad:
        loss.backward()
    return value
