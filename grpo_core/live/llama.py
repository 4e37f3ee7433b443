"""Llama written out: the same arithmetic as transformers' LlamaForCausalLM in far fewer operations; see packed.py."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from grpo_core.live.packed import PackedEngine

MOST_PARAMETERS = 30_000_000
"""Beyond this size the matrices take the time, and the general engine knows how to use less memory."""
_PLAIN_PLACES = ("default", "linear", "llama3")
"""Rotary embeddings whose frequencies do not depend on how long a text is."""
_Turn = tuple[Tensor, Tensor]


class _Layer(NamedTuple):
    """The weights of one transformer block; matrices are (out, in), queries, keys and values in one."""

    norm1: Tensor
    qkv: Tensor
    out: Tensor
    norm2: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor


class LlamaEngine(PackedEngine):
    """The fast engine for small Llama models without biases, in float32."""

    def __init__(self, model: Any) -> None:
        body, config = model.model, model.config
        self.heads = config.num_key_value_heads
        self.shared = config.num_attention_heads // self.heads
        self.size, self.scale = body.layers[0].self_attn.head_dim, body.layers[0].self_attn.scaling
        self.epsilon = config.rms_norm_eps
        self.rotary = body.rotary_emb
        self.embedding, self.norm, self.head = body.embed_tokens.weight, body.norm.weight, model.lm_head.weight
        padding = body.embed_tokens.padding_idx
        self.padding = -1 if padding is None else padding
        self.blocks = list(body.layers)

    @staticmethod
    def supports(model: Any) -> bool:
        """Say whether a model is exactly what is written out here, and small."""
        config = model.config
        return (
            type(model).__name__ == "LlamaForCausalLM"
            and model.dtype == torch.float32
            and model.num_parameters() <= MOST_PARAMETERS
            and config.hidden_act == "silu"
            and config.rope_parameters["rope_type"] in _PLAIN_PLACES
            and not any((config.attention_bias, config.mlp_bias, config.attention_dropout))
        )

    def _layers(self) -> Sequence[_Layer]:
        return [_layer(block) for block in self.blocks]

    def _embed(self, ids: Tensor, positions: Tensor) -> tuple[Tensor, _Turn]:
        """Rows, and by which cosines and sines (N, 1, D) their heads are turned; half of the sines negated."""
        x = torch.embedding(self.embedding, ids, self.padding)
        cosine, sine = (part[0, :, None] for part in self.rotary(x, positions[None]))
        first, second = sine.chunk(2, 2)
        return x, (cosine, torch.cat([-first, second], 2))

    def _qkv(self, x: Tensor, layer: _Layer, places: _Turn) -> Tensor:
        x = functional.rms_norm(x, x.shape[1:], layer.norm1, self.epsilon)
        turned = self.heads * (self.shared + 1)
        qkv = torch.mm(x, layer.qkv.t()).view(len(x), turned + self.heads, -1)
        qk, v = qkv.split_with_sizes((turned, self.heads), 1)
        cosine, sine = places
        return torch.cat([torch.addcmul(qk * cosine, qk.roll(qk.shape[2] // 2, 2), sine), v], 1)

    def _finish(self, x: Tensor, mixed: Tensor, layer: _Layer) -> Tensor:
        x = torch.addmm(x, mixed, layer.out.t())
        h = functional.rms_norm(x, x.shape[1:], layer.norm2, self.epsilon)
        h = functional.silu(torch.mm(h, layer.gate.t())) * torch.mm(h, layer.up.t())
        return torch.addmm(x, h, layer.down.t())

    def _logits(self, x: Tensor) -> Tensor:
        return torch.mm(functional.rms_norm(x, x.shape[1:], self.norm, self.epsilon), self.head.t())


def _layer(block: Any) -> _Layer:
    """Collect a block's weights."""
    attention, mlp = block.self_attn, block.mlp
    qkv = torch.cat([part.weight for part in (attention.q_proj, attention.k_proj, attention.v_proj)])
    matrices = (mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight)
    norms = block.input_layernorm.weight, block.post_attention_layernorm.weight
    return _Layer(norms[0], qkv, attention.o_proj.weight, norms[1], *matrices)
