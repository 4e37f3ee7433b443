"""What the engines written out for one architecture share: the packed layout, attention over it, and decoding.

At this size a step's time goes into the number of operations and into padding, not into the matrices. So decoding
writes into a cache of fixed size, and the forward pass of an update packs all prompt tokens and the real tokens of all
distinct completions into one matrix of N rows; only attention sees padding. Weights are the model's own parameters:
gradients arrive there.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from grpo_core.live.engines import Completions, Prompts

BLOCKED = -1e30
"""Added to the score of a key that must not be seen; finite, so that a padded query gives no NaN."""


@dataclass(frozen=True)
class Block:
    """Attention among some of the packed rows: which of them ask (S Lq,), which are asked (S Lk,), None for the same.

    sequences is S; bias (1 or S, 1, Lq, Lk) holds the score offsets. Padding names row 0.
    """

    sequences: int
    queries: Tensor
    keys: Tensor | None
    bias: Tensor = field(repr=False)


@dataclass(frozen=True)
class Plan:
    """Where everything stands when prompts and distinct completions are packed into one matrix of N rows.

    inputs, positions (N,): token ids and positions, the P Tp prompt tokens first. blocks: how they attend to each
    other; back (N,): where each row's result stands among theirs. last: the packed rows whose logits count. targets:
    (which of those rows, which token, where in a table of `shape`, (D, T)). same (B,): which row of that table each
    completion is.
    """

    shape: tuple[int, int]
    inputs: Tensor
    positions: Tensor
    blocks: tuple[Block, ...]
    back: Tensor
    last: Tensor
    targets: tuple[Tensor, Tensor, Tensor]
    same: Tensor


@dataclass
class State:
    """Decoding state: per layer keys (R, H, D, room) and values (R, H, room, D), `used` of the room filled.

    The whole room takes part in every product, since a slice of it would be copied first; `bias` (room, room) holds in
    row t the score offsets that hide what lies after t, `blocked` (R, 1, room) those that hide a prompt's padding.
    """

    layers: Sequence[Any]
    keys: list[Tensor]
    values: list[Tensor]
    used: int
    positions: Tensor
    bias: Tensor
    blocked: Tensor | None


class PackedEngine(ABC):
    """An engine for one architecture.

    heads: of keys and values; shared: how many query heads each of them serves; size: of a head.
    """

    heads: int
    shared: int
    size: int
    scale: float

    @abstractmethod
    def _layers(self) -> Sequence[Any]:
        """Give the weights of every layer."""

    @abstractmethod
    def _embed(self, ids: Tensor, positions: Tensor) -> tuple[Tensor, Any]:
        """Embed tokens (N,): the rows (N, W), and what the layers must know of their positions."""

    @abstractmethod
    def _qkv(self, x: Tensor, layer: Any, places: Any) -> Tensor:
        """Queries, keys and values of rows (N, W), heads one after the other: (N, all heads, D)."""

    @abstractmethod
    def _finish(self, x: Tensor, mixed: Tensor, layer: Any) -> Tensor:
        """Project what attention gathered, add it, and run the MLP."""

    @abstractmethod
    def _logits(self, x: Tensor) -> Tensor:
        """Logits (N, V)."""

    # --- decoding ---------------------------------------------------------------------------------

    def begin(self, prompts: Prompts, max_new_tokens: int) -> tuple[Tensor, State]:
        """Forward the prompts, and make room for the tokens to come."""
        (count, length), layers = prompts.ids.shape, self._layers()
        x, places = self._embed(prompts.ids.flatten(), prompts.positions.flatten())
        bias = _prompt_bias(prompts)
        keys, values = [], []
        for number, layer in enumerate(layers):
            q, kv = self._sides(self._qkv(x, layer, places))
            k, v = self._keys_values(kv, count)
            keys.append(functional.pad(k.mT, (0, max_new_tokens)))
            values.append(functional.pad(v, (0, 0, 0, max_new_tokens)))
            mixed = self._attend(q, k, v, bias)
            if number == len(layers) - 1:
                mixed, x = (rows.view(count, length, -1)[:, -1] for rows in (mixed, x))
            x = self._finish(x, mixed, layer)
        hidden = None if prompts.mask is None else functional.pad(bias[:, 0, -1:], (0, max_new_tokens))
        later = _causal(length + max_new_tokens, x.device)
        return self._logits(x), State(layers, keys, values, length, prompts.lengths, later, hidden)

    def advance(self, state: State, tokens: Tensor) -> Tensor:
        """Append one token to every row."""
        rows, heads, used = len(tokens), len(tokens) * self.heads, state.used
        sizes = (self.heads * self.shared, self.heads, self.heads)
        x, places = self._embed(tokens, state.positions)
        bias = state.bias[used] if state.blocked is None else state.bias[used] + state.blocked
        for layer, keys, values in zip(state.layers, state.keys, state.values, strict=True):
            q, k, v = self._qkv(x, layer, places).split_with_sizes(sizes, 1)
            keys[:, :, :, used] = k
            values[:, :, used] = v
            scores = torch.bmm(q.reshape(heads, self.shared, -1), keys.flatten(0, 1)).view(rows, q.shape[1], -1)
            weights = torch.add(bias, scores, alpha=self.scale).softmax(-1)
            mixed = torch.bmm(weights.view(heads, self.shared, -1), values.flatten(0, 1))
            x = self._finish(x, mixed.view(rows, -1), layer)
        state.used, state.positions = used + 1, state.positions + 1
        return self._logits(x)

    def keep(self, state: State, rows: Tensor) -> State:
        """Rearrange the rows of the cache."""
        return State(
            state.layers,
            [keys.index_select(0, rows) for keys in state.keys],
            [values.index_select(0, rows) for values in state.values],
            state.used,
            state.positions[rows],
            state.bias,
            None if state.blocked is None else state.blocked[rows],
        )

    # --- log-probabilities ------------------------------------------------------------------------

    def plan(self, prompts: Prompts, completions: Completions) -> Plan:
        """Pack prompts and completions."""
        return make_plan(prompts, completions, heads=self.heads * self.shared, size=self.size)

    def logps(self, plan: Plan, *, temperature: float = 1.0) -> Tensor:
        """Forward the packed matrix; only the rows whose logits count go through the last block's MLP."""
        layers = self._layers()
        x, places = self._embed(plan.inputs, plan.positions)
        for number, layer in enumerate(layers):
            mixed = self._mixed(self._qkv(x, layer, places), plan.blocks)
            if number < len(layers) - 1:
                mixed = mixed.index_select(0, plan.back)
            else:
                mixed, x = mixed.index_select(0, plan.back[plan.last]), x.index_select(0, plan.last)
            x = self._finish(x, mixed, layer)
        logits = self._logits(x)
        rows, tokens, slots = plan.targets
        logp = (logits if temperature == 1.0 else logits / temperature).log_softmax(-1)[rows, tokens]
        table = logp.new_zeros(plan.shape[0] * plan.shape[1]).index_copy(0, slots, logp).view(plan.shape)
        return table.index_select(0, plan.same)

    def _mixed(self, qkv: Tensor, blocks: Sequence[Block]) -> Tensor:
        """What every query of every block gathers, one block after the other: (sum of S Lq, heads D)."""
        mixed = [self._in_block(qkv, block) for block in blocks]
        return mixed[0] if len(mixed) == 1 else torch.cat(mixed)

    def _in_block(self, qkv: Tensor, block: Block) -> Tensor:
        if block.keys is None:
            q, kv = self._sides(qkv.index_select(0, block.queries))
        else:
            q, kv = self._sides(qkv)
            q, kv = q.index_select(0, block.queries), kv.index_select(0, block.keys)
        k, v = self._keys_values(kv, block.sequences)
        return self._attend(q, k, v, block.bias)

    # --- attention --------------------------------------------------------------------------------

    def _sides(self, qkv: Tensor) -> tuple[Tensor, ...]:
        """Split (N, all heads, D) into queries, and keys and values together."""
        return qkv.split_with_sizes((self.heads * self.shared, 2 * self.heads), 1)

    def _keys_values(self, kv: Tensor, sequences: int) -> tuple[Tensor, ...]:
        """(S L, 2 H, D) -> keys and values, each (S, H, L, D)."""
        return kv.view(sequences, -1, 2, self.heads, kv.shape[2]).permute(2, 0, 3, 1, 4).unbind(0)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        """Plain attention of queries (S Lq, heads, D) -> (S Lq, heads D); at this size faster than fused kernels."""
        sequences, size = k.shape[0], k.shape[3]
        q = q.view(sequences, -1, self.heads, self.shared, size).permute(0, 2, 3, 1, 4).flatten(2, 3)
        bias = bias if self.shared == 1 else bias.repeat(1, 1, self.shared, 1)
        weights = torch.add(bias, torch.matmul(q, k.mT), alpha=self.scale).softmax(-1)
        mixed = torch.matmul(weights, v).view(sequences, self.heads, self.shared, -1, size)
        return mixed.permute(0, 3, 1, 2, 4).flatten(2).flatten(0, 1)


# --- the plan -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """What a plan's layout is made of: of every distinct completion its group and its length without the last token
    (D,), and of every packed completion token its completion and its place there.
    """

    prompts: Prompts
    group: np.ndarray
    fed: np.ndarray
    row: np.ndarray
    place: np.ndarray

    @property
    def first(self) -> int:
        """The first packed row of a completion: prompts come first."""
        return self.prompts.ids.numel()

    def tensor(self, numbers: np.ndarray) -> Tensor:
        """Bring whole numbers to where the prompts are."""
        return torch.from_numpy(numbers).to(self.prompts.ids.device)


def make_plan(prompts: Prompts, completions: Completions, *, heads: int, size: int) -> Plan:
    """Work out the packed layout of a batch for a model with heads of that size; see Plan."""
    (count, length), width = prompts.ids.shape, completions.tokens.shape[1]
    chosen, same = completions.distinct
    first, fed = chosen.cpu().numpy(), (completions.lengths[chosen] - 1).cpu().numpy()
    row = np.repeat(np.arange(len(fed)), fed)
    place = np.arange(len(row)) - (fed.cumsum() - fed)[row]
    rows = _Rows(prompts, first // completions.group_size, fed, row, place)
    blocks, back = _layout(rows, heads, size)
    tokens, at = completions.tokens.flatten(), rows.tensor(first[row] * width + place)
    start = rows.tensor(rows.group[row])
    packed, ends = np.arange(len(row)), np.arange(1, count + 1) * length - 1
    return Plan(
        shape=(len(fed), width),
        inputs=torch.cat([prompts.ids.flatten(), tokens[at]]),
        positions=torch.cat([prompts.positions.flatten(), prompts.lengths[start] + rows.tensor(place)]),
        blocks=blocks,
        back=back,
        last=rows.tensor(np.concatenate([ends, count * length + packed])),
        targets=(
            rows.tensor(np.concatenate([rows.group, count + packed])),
            torch.cat([completions.tokens[chosen, 0], tokens[at + 1]]),
            rows.tensor(np.concatenate([np.arange(len(fed)) * width, row * width + place + 1])),
        ),
        same=same,
    )


def _layout(rows: _Rows, heads: int, size: int) -> tuple[tuple[Block, ...], Tensor]:
    """Lay attention out: a group in one sequence, unless its scores of completions among each other are too many."""
    count, length = rows.prompts.ids.shape
    sizes = np.bincount(rows.group, weights=rows.fed, minlength=count).astype(np.int64)
    width, longest = int(rows.fed.max()), length + int(sizes.max())
    blocks = [(count, length, length), (len(rows.fed), width, length + width)]
    pays = attention_cost([(count, longest, longest)], heads, size) <= attention_cost(blocks, heads, size)
    return _together(rows, sizes, longest) if pays else _apart(rows, width)


def attention_cost(blocks: Sequence[tuple[int, int, int]], heads: int, size: int) -> int:
    """Numbers that attention in blocks (S, Lq, Lk) handles: scores, queries, and keys and values; near to its time."""
    return sum(heads * s * (lq * lk + size * (lq + 2 * lk)) for s, lq, lk in blocks)


def _together(rows: _Rows, sizes: np.ndarray, longest: int) -> tuple[tuple[Block, ...], Tensor]:
    """One sequence for each group: its prompt, then its completions, of which none sees another."""
    count, length = rows.prompts.ids.shape
    at = np.arange(count) * longest
    start = length + (rows.fed.cumsum() - rows.fed) - (sizes.cumsum() - sizes)[rows.group]
    own = (at[rows.group] + start)[rows.row] + rows.place
    back = np.concatenate([(at[:, None] + np.arange(length)).reshape(-1), own])
    queries = np.zeros(count * longest, dtype=np.int64)
    queries[back] = np.arange(len(back))
    # whose a token is: 0 everybody's (the prompt), 1 nobody's (padding), then a completion's
    owner = np.ones(count * longest, dtype=np.int64)
    owner[back[: rows.first]] = 0 if rows.prompts.mask is None else ~rows.prompts.mask.flatten().cpu().numpy()
    owner[own] = rows.row + 2
    owners = rows.tensor(owner).view(count, longest)
    hidden = (owners[:, None] != 0) & (owners[:, None] != owners[:, :, None])
    bias = _causal(longest, owners.device).expand(count, -1, -1).masked_fill(hidden, BLOCKED)
    return (Block(count, rows.tensor(queries), None, bias[:, None]),), rows.tensor(back)


def _apart(rows: _Rows, width: int) -> tuple[tuple[Block, ...], Tensor]:
    """Prompts by themselves, and every completion with its prompt before it."""
    count, length = rows.prompts.ids.shape
    prompt_bias, prompts = _prompt_bias(rows.prompts), np.arange(rows.first)
    own = np.zeros((len(rows.fed), width), dtype=np.int64)
    own[rows.row, rows.place] = rows.first + np.arange(len(rows.row))
    keys = np.concatenate([prompts.reshape(count, length)[rows.group], own], 1)
    seen = prompt_bias[:, :, -1:]
    seen = (seen if rows.prompts.mask is None else seen[rows.tensor(rows.group)]).expand(-1, 1, width, -1)
    bias = torch.cat([seen, _causal(width, seen.device).expand(len(seen), 1, -1, -1)], 3)
    blocks = (
        Block(count, rows.tensor(prompts), None, prompt_bias),
        Block(len(own), rows.tensor(own.reshape(-1)), rows.tensor(keys.reshape(-1)), bias),
    )
    return blocks, rows.tensor(np.concatenate([prompts, rows.first + rows.row * width + rows.place]))


def _prompt_bias(prompts: Prompts) -> Tensor:
    """Score offsets (1 or P, 1, Tp, Tp) of the prompts among themselves."""
    causal = _causal(prompts.ids.shape[1], prompts.ids.device)[None, None]
    if prompts.mask is None:
        return causal
    return causal.masked_fill(~prompts.mask[:, None, None], BLOCKED)


def _causal(length: int, device: torch.device) -> Tensor:
    return torch.full((length, length), BLOCKED, device=device).triu(1)
