"""GPT-2 written out: the same arithmetic as transformers' GPT2LMHeadModel in far fewer operations.

At this size a step's time goes into the number of operations and into padding, not into the matrices. So decoding
writes into a cache of fixed size, and the forward pass of an update packs all prompt tokens and the real tokens of all
distinct completions into one matrix; only attention sees padding. Weights are the model's own parameters: gradients
arrive there.
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
    """Where everything stands when prompts and distinct completions are packed into one matrix of N rows.

    inputs, positions (N,): token ids and positions, the P Tp prompt tokens first. group (D,): each distinct
    completion's prompt. slots: for every packed completion token its place in the padded (D Tc) layout. last: the
    packed rows whose logits count. targets: (which of those rows, which token, where in a (D T) table). same (B,):
    which row of that table each completion is.
    """

    prompts: int
    prompt_length: int
    width: int
    shape: tuple[int, int]
    group: Tensor
    inputs: Tensor
    positions: Tensor
    slots: Tensor
    last: Tensor
    targets: tuple[Tensor, Tensor, Tensor]
    same: Tensor
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

    def begin(self, prompts: Prompts, max_new_tokens: int) -> tuple[Tensor, _State]:
        """Forward the prompts, and make room for the tokens to come."""
        count, length = prompts.ids.shape
        x = self.embedding[prompts.ids.flatten()] + self.places[prompts.positions.flatten()]
        bias = _prompt_bias(prompts)
        keys, values = [], []
        for number, layer in enumerate(self.layers):
            q, k, v = self._split(self._qkv(x, layer), count, length)
            keys.append(functional.pad(k.mT, (0, max_new_tokens)))
            values.append(functional.pad(v, (0, 0, 0, max_new_tokens)))
            mixed = _attend(q, k, v, bias, self.scale)
            if number == len(self.layers) - 1:
                mixed, x = mixed[:, :, -1:], x.view(count, length, -1)[:, -1]
            x = self._finish(x, _merge(mixed), layer)
        hidden = None if prompts.mask is None else functional.pad(bias[:, 0, -1:], (0, max_new_tokens))
        later = _causal(length + max_new_tokens, x.device)
        return self._logits(x), _State(keys, values, length, prompts.lengths, later, hidden)

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
        """Rearrange the rows of the cache."""
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
        table = logp.new_zeros(plan.shape[0] * plan.shape[1]).index_copy(0, places, logp).view(plan.shape)
        return table[plan.same]

    def _attention(self, qkv: Tensor, plan: Plan) -> Tensor:
        """Attention of packed rows (N, 3 W) -> (N, W): prompts see themselves, completions also their prompt."""
        count, length = plan.prompts, plan.prompt_length
        q, k, v = self._split(qkv[: count * length], count, length)
        prompt = _merge(_attend(q, k, v, plan.prompt_bias, self.scale))
        if plan.width == 0:
            return prompt
        padded = qkv.new_zeros(len(plan.group) * plan.width, qkv.shape[1])
        padded = padded.index_copy(0, plan.slots, qkv[count * length :])
        own_q, own_k, own_v = self._split(padded, len(plan.group), plan.width)
        keys = torch.cat([k[plan.group], own_k], 2)
        values = torch.cat([v[plan.group], own_v], 2)
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
    (count, length), device = prompts.ids.shape, prompts.ids.device
    rows, same = completions.distinct
    own, group = completions.tokens[rows], rows // completions.group_size
    fed = completions.lengths[rows] - 1
    width = int(fed.max())
    slots = (torch.arange(width, device=device) < fed[:, None]).flatten().nonzero().squeeze(1)
    row, place = slots // max(width, 1), slots % max(width, 1)
    packed = torch.arange(len(slots), device=device)
    prompt_bias = _prompt_bias(prompts)
    return Plan(
        prompts=count,
        prompt_length=length,
        width=width,
        shape=(len(rows), own.shape[1]),
        group=group,
        inputs=torch.cat([prompts.ids.flatten(), own[row, place]]),
        positions=torch.cat([prompts.positions.flatten(), prompts.lengths[group[row]] + place]),
        slots=slots,
        last=torch.cat([torch.arange(1, count + 1, device=device) * length - 1, count * length + packed]),
        targets=(
            torch.cat([group, count + packed]),
            torch.cat([own[:, 0], own[row, place + 1]]),
            torch.cat([torch.arange(len(rows), device=device) * own.shape[1], row * own.shape[1] + place + 1]),
        ),
        same=same,
        prompt_bias=prompt_bias,
        bias=_completion_bias(prompts, prompt_bias, width, group),
    )


def _completion_bias(prompts: Prompts, prompt_bias: Tensor, width: int, group: Tensor) -> Tensor:
    """Score offsets (1 or D, 1, Tc, Tp + Tc): own tokens causally, the prompt except its padding."""
    own = _causal(width, prompts.ids.device)
    seen = prompt_bias[:, :, -1:] if prompts.mask is None else prompt_bias[group, :, -1:]
    return torch.cat([seen.expand(-1, 1, width, -1), own.expand(len(seen), 1, width, width)], 3)


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


def _layer(block: Any) -> _Layer:
    """Collect a block's parameters."""
    parts = (block.ln_1, block.attn.c_attn, block.attn.c_proj, block.ln_2, block.mlp.c_fc, block.mlp.c_proj)
    return _Layer(*(tensor for part in parts for tensor in (part.weight, part.bias)))
