"""Two ways to run a causal language model on groups: a general one, and a fast one written out for GPT-2.

Both sample with a key-value cache, and both compute what completions have in common once, also when they are
differentiated: a prompt for its whole group, and completions of a group that are the same token by token. They give
the same tokens for the same random numbers, and log-probabilities that agree to rounding.

Shapes: P prompts, G completions a prompt, B = P G rows (a group's rows stand together), D distinct rows among them,
T tokens, V vocabulary.
"""

from dataclasses import dataclass
from functools import cached_property
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

    @cached_property
    def distinct(self) -> tuple[Tensor, Tensor]:
        """Which rows are the first of their kind in their group (D,), and for every row which of these it equals (B,).

        Small models and trained ones repeat themselves: of the 64 completions of a step often a third or less differ.
        """
        first: dict[tuple[int, ...], int] = {}
        rows: list[int] = []
        same: list[int] = []
        for row, (tokens, length) in enumerate(zip(self.tokens.tolist(), self.lengths.tolist(), strict=True)):
            key = (row // self.group_size, *tokens[:length])
            if key not in first:
                first[key] = len(rows)
                rows.append(row)
            same.append(first[key])
        return torch.tensor(rows, device=self.tokens.device), torch.tensor(same, device=self.tokens.device)

    def groups(self, rows: Tensor) -> "Completions":
        """Give the completions of some of the groups, cut to their longest."""
        size = self.group_size
        lengths = self.lengths.view(-1, size)[rows].flatten()
        tokens = self.tokens.view(-1, size, self.tokens.shape[1])[rows].flatten(0, 1)
        return Completions(tokens[:, : int(lengths.max())], lengths, size)


class Engine(Protocol):
    """What sampling and updating need of a model."""

    def begin(self, prompts: Prompts, max_new_tokens: int) -> tuple[Tensor, Any]:
        """Forward the prompts: logits (P, V) for their first new token, and the decoding state with one row each."""
        ...

    def advance(self, state: Any, tokens: Tensor) -> Tensor:
        """Append one token to each row (R,) and give the logits (R, V) for the next one."""
        ...

    def keep(self, state: Any, rows: Tensor) -> Any:
        """Give the decoding state of some rows, each as often as it is named."""
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

    def begin(self, prompts: Prompts, max_new_tokens: int) -> tuple[Tensor, _GeneralState]:
        """Forward the prompts once."""
        logits, cache = self._prefill(prompts)
        return logits, _GeneralState(cache, self._mask(prompts), prompts.lengths)

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
        """Rearrange the rows of the cache."""
        state.cache.batch_select_indices(rows)
        return _GeneralState(state.cache, state.mask[rows], state.positions[rows])

    def plan(self, prompts: Prompts, completions: Completions) -> tuple[Prompts, Completions]:
        """There is nothing to lay out."""
        return prompts, completions

    def logps(self, plan: tuple[Prompts, Completions], *, temperature: float = 1.0) -> Tensor:
        """Forward each prompt, then each distinct completion over its prompt's cache; gradients flow through it."""
        prompts, completions = plan
        rows, same = completions.distinct
        group = rows // completions.group_size
        first, cache = self._prefill(prompts)
        logits = first[group][:, None]
        if completions.tokens.shape[1] > 1:
            logits = torch.cat([logits, self._continue(prompts, completions, cache)], 1)
        logp = token_logps(logits, completions.tokens[rows], temperature=temperature)
        return torch.where(completions.mask, logp[same], logp.new_zeros(()))

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
        """Logits (D, T - 1, V) after each token but the last of the distinct completions."""
        rows, _ = completions.distinct
        group, inputs = rows // completions.group_size, completions.tokens[rows, :-1]
        cache.batch_select_indices(group)
        before = self._mask(prompts)[group]
        steps = torch.arange(inputs.shape[1], device=inputs.device)
        out = self.model(
            input_ids=inputs,
            attention_mask=torch.cat([before, completions.mask[rows, :-1].to(before.dtype)], 1),
            position_ids=prompts.lengths[group][:, None] + steps,
            cache=cache,
            use_cache=True,
        )
        logits: Tensor = out.logits
        return logits

    @staticmethod
    def _mask(prompts: Prompts) -> Tensor:
        return torch.ones_like(prompts.ids) if prompts.mask is None else prompts.mask.long()
