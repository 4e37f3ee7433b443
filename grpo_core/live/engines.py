"""Two ways to run a causal language model on groups: a general one, and a fast one written out for GPT-2.

Both sample with a key-value cache and forward each prompt once for its whole group, also when they are differentiated.
They give the same tokens for the same random numbers, and log-probabilities that agree to rounding.

Shapes: P prompts, G completions a prompt, B = P G rows (a group's rows stand together), T tokens, V vocabulary.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import DynamicCache

from grpo_core.live.logprobs import token_logps
from grpo_core.live.model import Policy


@dataclass(frozen=True)
class Prompts:
    """Prompts as token ids (P, Tp), padded on the left; mask is True on real tokens, None when all are real."""

    ids: Tensor
    mask: Tensor | None = None

    @property
    def positions(self) -> Tensor:
        """Position of every prompt token, (P, Tp); padding gets 0."""
        if self.mask is None:
            return torch.arange(self.ids.shape[1], device=self.ids.device).expand_as(self.ids)
        return (self.mask.long().cumsum(1) - 1).clamp(min=0)

    @property
    def lengths(self) -> Tensor:
        """Number of real tokens, (P,)."""
        if self.mask is None:
            return torch.full((self.ids.shape[0],), self.ids.shape[1], device=self.ids.device)
        return self.mask.sum(1)

    def select(self, rows: Tensor) -> "Prompts":
        """Give some of the prompts."""
        return Prompts(self.ids[rows], None if self.mask is None else self.mask[rows])


@dataclass(frozen=True)
class Completions:
    """Sampled completions: tokens (B, T) padded on the right, and their lengths (B,), at least 1, EOS included."""

    tokens: Tensor
    lengths: Tensor
    group_size: int

    @property
    def mask(self) -> Tensor:
        """True on a completion's own tokens, (B, T)."""
        return torch.arange(self.tokens.shape[1], device=self.tokens.device) < self.lengths[:, None]

    def groups(self, rows: Tensor) -> "Completions":
        """Give the completions of some of the groups, cut to their longest."""
        size = self.group_size
        lengths = self.lengths.view(-1, size)[rows].flatten()
        tokens = self.tokens.view(-1, size, self.tokens.shape[1])[rows].flatten(0, 1)
        return Completions(tokens[:, : int(lengths.max())], lengths, size)


class Engine(Protocol):
    """What sampling and updating need of a model."""

    def begin(self, prompts: Prompts, group_size: int, max_new_tokens: int) -> tuple[Tensor, Any]:
        """Forward the prompts once: logits (B, V) for the first token of every row, and the decoding state."""
        ...

    def advance(self, state: Any, tokens: Tensor) -> Tensor:
        """Append one token a row (R,) and give the logits (R, V) for the next one."""
        ...

    def keep(self, state: Any, rows: Tensor) -> Any:
        """Give the decoding state of some of the rows."""
        ...

    def plan(self, prompts: Prompts, completions: Completions) -> Any:
        """Lay a batch out for logps; the plan depends on no weight and serves every model of this kind."""
        ...

    def logps(self, plan: Any, *, temperature: float = 1.0) -> Tensor:
        """Log-probabilities (B, T) of the completions' tokens, 0 on padding, with gradients where enabled."""
        ...


def make_engine(policy: Policy, *, general: bool = False) -> Engine:
    """Choose the fast engine where the model's architecture allows it, else the general one."""
    from grpo_core.live.gpt2 import Gpt2Engine

    if not general and Gpt2Engine.supports(policy.model):
        return Gpt2Engine(policy.model)
    return GeneralEngine(policy.model)


@dataclass
class _GeneralState:
    cache: Any
    mask: Tensor
    positions: Tensor


class GeneralEngine:
    """Any causal LM of transformers, through its own forward pass and a DynamicCache."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def begin(self, prompts: Prompts, group_size: int, max_new_tokens: int) -> tuple[Tensor, _GeneralState]:
        """Forward the prompts once and repeat their cache for every completion."""
        logits, cache = self._prefill(prompts)
        cache.batch_repeat_interleave(group_size)
        mask = self._mask(prompts).repeat_interleave(group_size, 0)
        positions = prompts.lengths.repeat_interleave(group_size)
        return logits.repeat_interleave(group_size, 0), _GeneralState(cache, mask, positions)

    def advance(self, state: _GeneralState, tokens: Tensor) -> Tensor:
        """Append one token to every row."""
        state.mask = torch.cat([state.mask, state.mask.new_ones(len(tokens), 1)], 1)
        out = self.model(
            input_ids=tokens[:, None],
            attention_mask=state.mask,
            position_ids=state.positions[:, None],
            cache=state.cache,
            use_cache=True,
        )
        state.positions = state.positions + 1
        logits: Tensor = out.logits[:, -1]
        return logits

    def keep(self, state: _GeneralState, rows: Tensor) -> _GeneralState:
        """Drop the other rows from the cache."""
        state.cache.batch_select_indices(rows)
        return _GeneralState(state.cache, state.mask[rows], state.positions[rows])

    def plan(self, prompts: Prompts, completions: Completions) -> tuple[Prompts, Completions]:
        """There is nothing to lay out."""
        return prompts, completions

    def logps(self, plan: tuple[Prompts, Completions], *, temperature: float = 1.0) -> Tensor:
        """Forward each prompt once, then its completions over the repeated cache; gradients flow through it."""
        prompts, completions = plan
        first, cache = self._prefill(prompts)
        logits = first.repeat_interleave(completions.group_size, 0)[:, None]
        if completions.tokens.shape[1] > 1:
            logits = torch.cat([logits, self._continue(prompts, completions, cache)], 1)
        logp = token_logps(logits, completions.tokens, temperature=temperature)
        return torch.where(completions.mask, logp, torch.zeros_like(logp))

    def _prefill(self, prompts: Prompts) -> tuple[Tensor, Any]:
        cache = DynamicCache(config=self.model.config)
        out = self.model(
            input_ids=prompts.ids,
            attention_mask=self._mask(prompts),
            position_ids=prompts.positions,
            cache=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return out.logits[:, -1], cache

    def _continue(self, prompts: Prompts, completions: Completions, cache: Any) -> Tensor:
        """Logits (B, T - 1, V) after each completion token but the last."""
        size, inputs = completions.group_size, completions.tokens[:, :-1]
        cache.batch_repeat_interleave(size)
        before = self._mask(prompts).repeat_interleave(size, 0)
        steps = torch.arange(inputs.shape[1], device=inputs.device)
        out = self.model(
            input_ids=inputs,
            attention_mask=torch.cat([before, completions.mask[:, :-1].to(before.dtype)], 1),
            position_ids=prompts.lengths.repeat_interleave(size)[:, None] + steps,
            cache=cache,
            use_cache=True,
        )
        logits: Tensor = out.logits
        return logits

    @staticmethod
    def _mask(prompts: Prompts) -> Tensor:
        return torch.ones_like(prompts.ids) if prompts.mask is None else prompts.mask.long()
