"""GPT-2 written out: the same arithmetic as transformers' GPT2LMHeadModel in far fewer operations.

At this size a step's time goes into the number of operations and into padding, not into the matrices. So decoding
writes into a cache of fixed size, and the forward pass of an update packs all prompt tokens and all real completion
tokens into one matrix; only attention sees padding. Weights are the model's own parameters: gradients arrive there.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from grpo_core.live.engines import Completions, Prompts

_ACTIVATIONS = {
    "gelu": functional.gelu,
    "gelu_new": lambda x: functional.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
}
_BLOCKED = -1e30
"""Added to the score of a key that must not be seen; finite, so that a padded query gives no NaN."""


class _Layer(NamedTuple):
    """The parameters of one transformer block; matrices are (in, out)."""

    norm1: Tensor
    norm1_bias: Tensor
    qkv: Tensor
    qkv_bias: Tensor
    out: Tensor
    out_bias: Tensor
    norm2: Tensor
    norm2_bias: Tensor
    up: Tensor
    up_bias: Tensor
    down: Tensor
    down_bias: Tensor


@dataclass
class _State:
    """Decoding state: per layer keys (R, H, D, room) and values (R, H, room, D), `used` of the room filled.

    The whole room takes part in every product, since a slice of it would be copied first; `bias` (room, room) holds in
    row t the score offsets that hide what lies after t, `blocked` (R, 1, room) those that hide a prompt's padding.
    """

    keys: list[Tensor]
    values: list[Tensor]
    used: int
    positions: Tensor
    bias: Tensor
    blocked: Tensor | None


@dataclass(frozen=True)
class Plan:
    """Where everything stands when prompts and completions are packed into one matrix of N rows.

    inputs, positions (N,): token ids and positions, the P Tp prompt tokens first. slots: for every packed
    completion token its place in the padded (B Tc) layout. last: the packed rows whose logits count. targets:
    (which of those rows, which token, where in the (B T) result).
    """

    prompts: int
    prompt_length: int
    group_size: int
    width: int
    shape: tuple[int, int]
    inputs: Tensor
    positions: Tensor
    slots: Tensor
    last: Tensor
    targets: tuple[Tensor, Tensor, Tensor]
    prompt_bias: Tensor
    bias: Tensor = field(repr=False)


class Gpt2Engine:
    """The fast engine for GPT-2 models without dropout."""

    def __init__(self, model: Any) -> None:
        body, config = model.transformer, model.config
        self.heads = config.n_head
        self.width = config.n_embd
        self.scale = (self.width // self.heads) ** -0.5
        self.epsilon = config.layer_norm_epsilon
        self.activation = _ACTIVATIONS[config.activation_function]
        self.embedding, self.places = body.wte.weight, body.wpe.weight
        self.norm, self.norm_bias = body.ln_f.weight, body.ln_f.bias
        self.head = model.lm_head.weight
        self.layers = [_layer(block) for block in body.h]

    @staticmethod
    def supports(model: Any) -> bool:
        """Say whether a model is exactly what is written out here."""
        config = model.config
        return (
            type(model).__name__ == "GPT2LMHeadModel"
            and config.activation_function in _ACTIVATIONS
            and not any((config.resid_pdrop, config.embd_pdrop, config.attn_pdrop))
            and config.scale_attn_weights
            and not config.scale_attn_by_inverse_layer_idx
            and not config.add_cross_attention
        )

    # --- decoding ---------------------------------------------------------------------------------

    def begin(self, prompts: Prompts, group_size: int, max_new_tokens: int) -> tuple[Tensor, _State]:
        """Forward the prompts once and repeat their keys and values for every completion."""
        count, length = prompts.ids.shape
        x = self.embedding[prompts.ids.flatten()] + self.places[prompts.positions.flatten()]
        bias = _prompt_bias(prompts)
        keys, values = [], []
        for number, layer in enumerate(self.layers):
            q, k, v = self._split(self._qkv(x, layer), count, length)
            keys.append(_room(k.mT, group_size, max_new_tokens, 3))
            values.append(_room(v, group_size, max_new_tokens, 2))
            mixed = _attend(q, k, v, bias, self.scale)
            if number == len(self.layers) - 1:
                mixed, x = mixed[:, :, -1:], x.view(count, length, -1)[:, -1]
            x = self._finish(x, _merge(mixed), layer)
        positions = prompts.lengths.repeat_interleave(group_size)
        room = length + max_new_tokens
        blocked = None
        if prompts.mask is not None:
            padding = functional.pad(bias[:, 0, -1:], (0, max_new_tokens))
            blocked = padding.repeat_interleave(group_size, 0)
        state = _State(keys, values, length, positions, _causal(room, x.device), blocked)
        return self._logits(x).repeat_interleave(group_size, 0), state

    def advance(self, state: _State, tokens: Tensor) -> Tensor:
        """Append one token to every row."""
        rows, heads, used = len(tokens), len(tokens) * self.heads, state.used
        x = self.embedding[tokens] + self.places[state.positions]
        bias = state.bias[used] if state.blocked is None else state.bias[used] + state.blocked
        for layer, keys, values in zip(self.layers, state.keys, state.values, strict=True):
            q, k, v = self._qkv(x, layer).view(rows, 3, self.heads, -1).unbind(1)
            keys[:, :, :, used] = k
            values[:, :, used] = v
            scores = torch.bmm(q.reshape(heads, 1, -1), keys.flatten(0, 1)).view(rows, self.heads, -1)
            weights = torch.add(bias, scores, alpha=self.scale).softmax(-1)
            mixed = torch.bmm(weights.view(heads, 1, -1), values.flatten(0, 1))
            x = self._finish(x, mixed.view(rows, -1), layer)
        state.used, state.positions = used + 1, state.positions + 1
        return self._logits(x)

    def keep(self, state: _State, rows: Tensor) -> _State:
        """Drop the other rows from the cache."""
        return _State(
            [keys[rows] for keys in state.keys],
            [values[rows] for values in state.values],
            state.used,
            state.positions[rows],
            state.bias,
            None if state.blocked is None else state.blocked[rows],
        )

    # --- log-probabilities ------------------------------------------------------------------------

    def plan(self, prompts: Prompts, completions: Completions) -> Plan:
        """Pack prompts and completions."""
        return make_plan(prompts, completions)

    def logps(self, plan: Plan, *, temperature: float = 1.0) -> Tensor:
        """Forward the packed matrix; only the rows whose logits count go through the last block's MLP."""
        x = self.embedding[plan.inputs] + self.places[plan.positions]
        for number, layer in enumerate(self.layers):
            mixed = self._attention(self._qkv(x, layer), plan)
            if number == len(self.layers) - 1:
                mixed, x = mixed[plan.last], x[plan.last]
            x = self._finish(x, mixed, layer)
        logits = self._logits(x)
        rows, tokens, places = plan.targets
        logp = (logits if temperature == 1.0 else logits / temperature).log_softmax(-1)[rows, tokens]
        return logp.new_zeros(plan.shape[0] * plan.shape[1]).index_copy(0, places, logp).view(plan.shape)

    def _attention(self, qkv: Tensor, plan: Plan) -> Tensor:
        """Attention of packed rows (N, 3 W) -> (N, W): prompts see themselves, completions also their prompt."""
        count, length, size = plan.prompts, plan.prompt_length, plan.group_size
        q, k, v = self._split(qkv[: count * length], count, length)
        prompt = _merge(_attend(q, k, v, plan.prompt_bias, self.scale))
        if plan.width == 0:
            return prompt
        padded = qkv.new_zeros(count * size * plan.width, qkv.shape[1])
        padded = padded.index_copy(0, plan.slots, qkv[count * length :])
        own_q, own_k, own_v = self._split(padded, count * size, plan.width)
        keys = torch.cat([_repeat(k, size), own_k], 2)
        values = torch.cat([_repeat(v, size), own_v], 2)
        mixed = _merge(_attend(own_q, keys, values, plan.bias, self.scale))
        return torch.cat([prompt, mixed[plan.slots]])

    # --- the parts of a block ---------------------------------------------------------------------

    def _qkv(self, x: Tensor, layer: _Layer) -> Tensor:
        x = functional.layer_norm(x, (self.width,), layer.norm1, layer.norm1_bias, self.epsilon)
        return torch.addmm(layer.qkv_bias, x, layer.qkv)

    def _finish(self, x: Tensor, mixed: Tensor, layer: _Layer) -> Tensor:
        """Project what attention gathered, add it, and run the MLP."""
        x = x + torch.addmm(layer.out_bias, mixed, layer.out)
        h = functional.layer_norm(x, (self.width,), layer.norm2, layer.norm2_bias, self.epsilon)
        h = self.activation(torch.addmm(layer.up_bias, h, layer.up))
        return x + torch.addmm(layer.down_bias, h, layer.down)

    def _logits(self, x: Tensor) -> Tensor:
        x = functional.layer_norm(x, (self.width,), self.norm, self.norm_bias, self.epsilon)
        return torch.mm(x, self.head.t())

    def _split(self, qkv: Tensor, rows: int, length: int) -> tuple[Tensor, ...]:
        """(rows length, 3 W) -> queries, keys, values, each (rows, H, length, D)."""
        return qkv.view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)


def make_plan(prompts: Prompts, completions: Completions) -> Plan:
    """Work out the packed layout of a batch; see Plan."""
    (count, length), size = prompts.ids.shape, completions.group_size
    (rows, tokens), device = completions.tokens.shape, prompts.ids.device
    fed = completions.lengths - 1
    width = int(fed.max())
    slots = (torch.arange(width, device=device) < fed[:, None]).flatten().nonzero().squeeze(1)
    row, place = slots // max(width, 1), slots % max(width, 1)
    starts = prompts.lengths.repeat_interleave(size)
    following = completions.tokens[row, place + 1]
    whole = count * length
    packed = torch.arange(len(slots), device=device)
    group = torch.arange(rows, device=device) // size
    prompt_bias = _prompt_bias(prompts)
    return Plan(
        prompts=count,
        prompt_length=length,
        group_size=size,
        width=width,
        shape=(rows, tokens),
        inputs=torch.cat([prompts.ids.flatten(), completions.tokens[row, place]]),
        positions=torch.cat([prompts.positions.flatten(), starts[row] + place]),
        slots=slots,
        last=torch.cat([torch.arange(count, device=device) * length + length - 1, whole + packed]),
        targets=(
            torch.cat([group, count + packed]),
            torch.cat([completions.tokens[:, 0], following]),
            torch.cat([torch.arange(rows, device=device) * tokens, row * tokens + place + 1]),
        ),
        prompt_bias=prompt_bias,
        bias=_completion_bias(prompts, prompt_bias, width, size),
    )


def _completion_bias(prompts: Prompts, prompt_bias: Tensor, width: int, size: int) -> Tensor:
    """Score offsets (1 or B, 1, Tc, Tp + Tc): own tokens causally, the prompt except its padding."""
    own = _causal(width, prompts.ids.device)
    seen = prompt_bias[:, :, -1:].expand(-1, 1, width, -1)
    bias = torch.cat([seen, own.expand(len(seen), 1, width, width)], 3)
    return bias if prompts.mask is None else bias.repeat_interleave(size, 0)


def _prompt_bias(prompts: Prompts) -> Tensor:
    """Score offsets (1 or P, 1, Tp, Tp) of the prompts among themselves."""
    causal = _causal(prompts.ids.shape[1], prompts.ids.device)[None, None]
    if prompts.mask is None:
        return causal
    return causal.masked_fill(~prompts.mask[:, None, None], _BLOCKED)


def _causal(length: int, device: torch.device) -> Tensor:
    return torch.full((length, length), _BLOCKED, device=device).triu(1)


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float) -> Tensor:
    """Plain attention over (rows, H, length, D); at this size faster than the fused kernels."""
    return torch.matmul(torch.add(bias, torch.matmul(q, k.mT), alpha=scale).softmax(-1), v)


def _merge(x: Tensor) -> Tensor:
    """(rows, H, length, D) -> (rows length, W)."""
    return x.transpose(1, 2).flatten(2).flatten(0, 1)


def _repeat(x: Tensor, times: int) -> Tensor:
    """Repeat each prompt's (P, H, Tp, D) for its completions: (P times, H, Tp, D)."""
    return x.unsqueeze(1).expand(-1, times, -1, -1, -1).flatten(0, 1)


def _room(x: Tensor, times: int, extra: int, axis: int) -> Tensor:
    """Repeat a prompt's keys or values for its completions, with room (zeros) for more tokens along an axis."""
    shape = list(x.shape)
    shape[0] *= times
    used = shape[axis]
    shape[axis] += extra
    room = x.new_zeros(shape)
    room.narrow(axis, 0, used).view(x.shape[0], times, *room.narrow(axis, 0, used).shape[1:]).copy_(x.unsqueeze(1))
    return room


def _layer(block: Any) -> _Layer:
    """Collect a block's parameters."""
    parts = (block.ln_1, block.attn.c_attn, block.attn.c_proj, block.ln_2, block.mlp.c_fc, block.mlp.c_proj)
    return _Layer(*(tensor for part in parts for tensor in (part.weight, part.bias)))
