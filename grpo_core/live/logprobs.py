"""Log-probabilities of chosen tokens from logits, without a float32 copy of all logits.

`logits.float().log_softmax(-1).gather(...)` keeps (B, T, V) float32 numbers for the backward pass, which for a real
vocabulary is most of the memory of a step. Here a few rows at a time are turned into float32, and only the logits
themselves and one number a token are kept.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK_ELEMENTS = 1 << 18
"""How many logits are looked at together: 1 MiB of float32, which stays in a core's cache."""


def token_logps(logits: Tensor, tokens: Tensor, *, temperature: float = 1.0) -> Tensor:
    r"""Return log softmax(logits / temperature) at `tokens`, in nats.

    `logits` (..., V) of any floating dtype, `tokens` (...) of integers; the result is (...) in float32 (float64 for
    float64 logits), computed in that precision. Only `logits` is differentiated, with (onehot - softmax) / temperature.
    """
    return _TokenLogps.apply(logits, tokens, float(temperature))


def _precise(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def _chunks(flat: Tensor) -> int:
    """Return how many rows of (N, V) go together."""
    return max(1, CHUNK_ELEMENTS // max(flat.shape[-1], 1))


class _TokenLogps(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:
        flat, index = logits.reshape(-1, logits.shape[-1]), tokens.reshape(-1, 1)
        normaliser = flat.new_empty(flat.shape[0], dtype=_precise(logits))
        taken = torch.empty_like(normaliser)
        size = _chunks(flat)
        for start in range(0, flat.shape[0], size):
            part = slice(start, start + size)
            scaled = flat[part].to(normaliser.dtype) / temperature
            normaliser[part] = torch.logsumexp(scaled, -1)
            taken[part] = scaled.gather(-1, index[part]).squeeze(-1)
        ctx.save_for_backward(flat, index, normaliser)
        ctx.temperature, ctx.shape = temperature, logits.shape
        return (taken - normaliser).view(tokens.shape)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        flat, index, normaliser = ctx.saved_tensors
        weights = (upstream.reshape(-1, 1) / ctx.temperature).to(normaliser.dtype)
        gradient = torch.empty_like(flat)
        size = _chunks(flat)
        for start in range(0, flat.shape[0], size):
            part = slice(start, start + size)
            scaled = flat[part].to(normaliser.dtype) / ctx.temperature
            scaled = scaled.sub_(normaliser[part, None]).exp_().mul_(-weights[part])
            gradient[part] = scaled.scatter_add_(-1, index[part], weights[part])
        return gradient.view(ctx.shape), None, None
