"""Two ways to run a causal language model on groups: a general one, and a fast one written out for GPT-2 and Llama.

Both sample with a key-value cache, and both compute what completions have in common once, also when they are
differentiated: a prompt for its whole group, and completions of a group that are the same token by token. They give
the same tokens for the same random numbers, and log-probabilities that agree to rounding.

Shapes: P prompts, G completions a prompt, B = P G rows (a group's rows stand together), D distinct rows among them,
T tokens, V vocabulary.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache

from grpo_core.live.estimates import shape_of, token_room
from grpo_core.live.logprobs import token_logps
from grpo_core.live.model import Policy, device_memory


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

    @cached_property
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
    from grpo_core.live.llama import LlamaEngine

    for kind in () if general else (Gpt2Engine, LlamaEngine):
        if kind.supports(policy.model):
            return kind(policy.model)
    return GeneralEngine(policy.model, room=_room(policy))


def _room(policy: Policy) -> int | None:
    """How many tokens a pass keeps for its backward pass; all where the configuration names no sizes."""
    try:
        shape = shape_of(policy.model.config.to_dict())
    except ValueError:
        return None
    half = policy.model.dtype.itemsize == 2
    return token_room(shape, policy.parameters, device_memory(policy.device), half=half)


@dataclass
class _GeneralState:
    cache: Any
    mask: Tensor
    positions: Tensor


class GeneralEngine:
    """Any causal LM of transformers, through its own forward pass and a DynamicCache.

    room: how many tokens one pass of logps may hold for the backward pass, None for all at once. Where there are more,
    rows go through in parts that are computed again when they are differentiated (gradient checkpointing over rows):
    the same numbers to rounding, one more forward pass, and the memory of one part.
    """

    def __init__(self, model: Any, *, room: int | None = None) -> None:
        self.model, self.room = model, room
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._known = set(inspect.signature(inner.forward).parameters)

    def begin(self, prompts: Prompts, max_new_tokens: int) -> tuple[Tensor, _GeneralState]:
        """Forward the prompts once."""
        logits, cache = self._prefill(prompts)
        return logits, _GeneralState(cache, self._mask(prompts), prompts.lengths)

    def advance(self, state: _GeneralState, tokens: Tensor) -> Tensor:
        """Append one token to every row."""
        state.mask = torch.cat([state.mask, state.mask.new_ones(len(tokens), 1)], 1)
        logits = self._forward(tokens[:, None], state.mask, state.positions[:, None], state.cache)[:, -1]
        state.positions = state.positions + 1
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
        own = _Rows(rows // completions.group_size, completions.tokens[rows], completions.mask[rows])
        parts = own.parts(prompts.ids.shape[1], self.room)
        if len(parts) == 1:
            logp = self._logps(prompts, own, temperature)
        else:
            again: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
            logp = torch.cat([checkpoint(self._logps, prompts, part, temperature, **again) for part in parts])
        return torch.where(completions.mask, logp[same], logp.new_zeros(()))

    def _logps(self, prompts: Prompts, own: "_Rows", temperature: float) -> Tensor:
        """Log-probabilities (R, T) of some rows, each over the cache of its prompt."""
        needed, group = torch.unique(own.group, return_inverse=True)
        prompts = prompts.select(needed)
        first, cache = self._prefill(prompts)
        logits = first[group][:, None]
        if own.tokens.shape[1] > 1:
            logits = torch.cat([logits, self._continue(prompts, own, group, cache)], 1)
        return token_logps(logits, own.tokens, temperature=temperature)

    def _prefill(self, prompts: Prompts) -> tuple[Tensor, Any]:
        cache = DynamicCache(config=self.model.config)
        logits = self._forward(prompts.ids, self._mask(prompts), prompts.positions, cache, logits_to_keep=1)
        return logits[:, -1], cache

    def _continue(self, prompts: Prompts, own: "_Rows", group: Tensor, cache: Any) -> Tensor:
        """Logits (R, T - 1, V) after each token but the last."""
        inputs = own.tokens[:, :-1]
        cache.batch_select_indices(group)
        before = self._mask(prompts)[group]
        steps = torch.arange(inputs.shape[1], device=inputs.device)
        mask = torch.cat([before, own.mask[:, :-1].to(before.dtype)], 1)
        return self._forward(inputs, mask, prompts.lengths[group][:, None] + steps, cache)

    def _forward(self, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any, **more: Any) -> Tensor:
        """The model's logits; positions and the wish for the last logits only where its forward pass knows them."""
        more["position_ids"] = positions
        known = {name: value for name, value in more.items() if name in self._known}
        out = self.model(input_ids=ids, attention_mask=mask, cache=cache, use_cache=True, **known)
        logits: Tensor = out.logits
        return logits

    @staticmethod
    def _mask(prompts: Prompts) -> Tensor:
        return torch.ones_like(prompts.ids) if prompts.mask is None else prompts.mask.long()


@dataclass(frozen=True)
class _Rows:
    """Distinct completions: each one's prompt (R,), tokens (R, T) and which of these are its own."""

    group: Tensor
    tokens: Tensor
    mask: Tensor

    def parts(self, prompt_length: int, room: int | None) -> "list[_Rows]":
        """Split so that a part's tokens, prompts included, fit into the room; at least one row each."""
        longest = self.tokens.shape[1]
        size = len(self.group) if room is None else max(1, room // (longest + prompt_length))
        rows = range(0, len(self.group), size)
        return [_Rows(*(x[start : start + size] for x in (self.group, self.tokens, self.mask))) for start in rows]


class Reference:
    """The reference policy: a frozen copy, or for a LoRA adapter the model without it, until it is refreshed."""

    def __init__(self, policy: Policy) -> None:
        self._adapted = policy if hasattr(policy.model, "disable_adapter") else None
        if self._adapted is None:
            policy = policy.copy()
            self.learned = list(policy.model.parameters())
        else:
            self.learned = [tensor.detach().clone() for tensor in policy.learned]
        self._engine, self._refreshed = make_engine(policy), False

    @torch.no_grad()
    def take(self, tensors: Sequence[Tensor]) -> None:
        """Become the policy whose learned tensors these are."""
        for own, other in zip(self.learned, tensors, strict=True):
            own.copy_(other)
        self._refreshed = True

    def plan(self, prompts: Prompts, completions: Completions) -> Any:
        """Lay a batch out, as the engine of the policy does."""
        return self._engine.plan(prompts, completions)

    @torch.no_grad()
    def logps(self, plan: Any, *, temperature: float = 1.0) -> Tensor:
        """Log-probabilities (B, T) under the reference, for the plan of an engine of the same kind of model."""
        if self._adapted is None:
            return self._engine.logps(plan, temperature=temperature)
        if not self._refreshed:
            with self._adapted.model.disable_adapter():
                return self._engine.logps(plan, temperature=temperature)
        self._swap()
        try:
            return self._engine.logps(plan, temperature=temperature)
        finally:
            self._swap()

    def _swap(self) -> None:
        """Exchange the adapter's numbers with the reference's."""
        assert self._adapted is not None
        for own, tensor in zip(self.learned, self._adapted.learned, strict=True):
            kept = tensor.clone()
            tensor.copy_(own)
            own.copy_(kept)
