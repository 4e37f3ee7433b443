"""GPT-2 written out: the same arithmetic as transformers' GPT2LMHeadModel in far fewer operations; see packed.py."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from grpo_core.live.packed import PackedEngine

_ACTIVATIONS = {
    "gelu": functional.gelu,
    "gelu_new": lambda x: functional.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
}


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


class Gpt2Engine(PackedEngine):
    """The fast engine for GPT-2 models without dropout, in float32."""

    def __init__(self, model: Any) -> None:
        body, config = model.transformer, model.config
        self.heads, self.shared, self.size = config.n_head, 1, config.n_embd // config.n_head
        self.shape = (config.n_embd,)
        self.scale = self.size**-0.5
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
            and model.dtype == torch.float32
            and config.activation_function in _ACTIVATIONS
            and not any((config.resid_pdrop, config.embd_pdrop, config.attn_pdrop))
            and config.scale_attn_weights
            and not config.scale_attn_by_inverse_layer_idx
            and not config.add_cross_attention
        )

    def _layers(self) -> Sequence[_Layer]:
        return self.layers

    def _embed(self, ids: Tensor, positions: Tensor) -> tuple[Tensor, None]:
        return torch.embedding(self.embedding, ids) + torch.embedding(self.places, positions), None

    def _qkv(self, x: Tensor, layer: _Layer, places: None) -> Tensor:
        x = torch.layer_norm(x, self.shape, layer.norm1, layer.norm1_bias, self.epsilon)
        return torch.addmm(layer.qkv_bias, x, layer.qkv).view(len(x), 3 * self.heads, -1)

    def _finish(self, x: Tensor, mixed: Tensor, layer: _Layer) -> Tensor:
        x = x + torch.addmm(layer.out_bias, mixed, layer.out)
        h = torch.layer_norm(x, self.shape, layer.norm2, layer.norm2_bias, self.epsilon)
        h = self.activation(torch.addmm(layer.up_bias, h, layer.up))
        return x + torch.addmm(layer.down_bias, h, layer.down)

    def _logits(self, x: Tensor) -> Tensor:
        x = torch.layer_norm(x, self.shape, self.norm, self.norm_bias, self.epsilon)
        return torch.mm(x, self.head.t())


def _layer(block: Any) -> _Layer:
    """Collect a block's parameters."""
    parts = (block.ln_1, block.attn.c_attn, block.attn.c_proj, block.ln_2, block.mlp.c_fc, block.mlp.c_proj)
    return _Layer(*(tensor for part in parts for tensor in (part.weight, part.bias)))
