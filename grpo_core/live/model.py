"""The policy: a causal language model with its tokenizer; how the built-in small ones are made, loaded and saved."""

import copy
import os
import string
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import GPT2Config, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.models.gpt2.modeling_gpt2 import GPT2LMHeadModel
from transformers.utils import logging

from grpo_core.live.config import RunConfig
from grpo_core.live.sources import ASSETS, find_source
from grpo_core.messages import InputError

__all__ = ["ASSETS", "Policy", "load_policy", "new_policy", "pick_device", "save_policy"]

SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
CHARACTERS = string.digits + string.ascii_lowercase + " :,=+-*?.|"
POSITIONS = 96


def prompt_text(tokenizer: Any, prompt: str) -> str:
    """The text that the model continues: the prompt in the model's chat template, or after its start-of-text token.

    What looks like a control token inside a prompt is read as one: prompts are the user's own.
    """
    if getattr(tokenizer, "chat_template", None):
        message = [{"role": "user", "content": prompt}]
        return str(tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True))
    return (tokenizer.bos_token or "") + prompt


@dataclass(frozen=True)
class Policy:
    """A causal language model with its tokenizer, on its device."""

    model: Any
    tokenizer: Any
    device: torch.device

    @cached_property
    def pieces(self) -> tuple[str, ...] | None:
        """The text of every token, where a text is simply its tokens' texts put together; else None."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        fused = isinstance(getattr(backend, "decoder", None), decoders.Fuse)
        return tuple(self.tokenizer.convert_ids_to_tokens(range(len(self.tokenizer)))) if fused else None

    def prompt_text(self, prompt: str) -> str:
        """As the function of this name, with the policy's tokenizer."""
        return prompt_text(self.tokenizer, prompt)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize texts as they stand, straight through the Rust tokenizer: its wrapper takes five times longer."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            return list(self.tokenizer(list(texts), add_special_tokens=False)["input_ids"])
        return [encoding.ids for encoding in backend.encode_batch_fast(list(texts), add_special_tokens=False)]

    def texts(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Decode completions (token ids without padding); the closing EOS is left out, tags are kept."""
        special = set(self.tokenizer.all_special_ids)
        if self.pieces is None:
            return list(self.tokenizer.batch_decode(rows, skip_special_tokens=True))
        return ["".join(self.pieces[i] for i in row if i not in special) for row in rows]

    def token_texts(self, rows: Sequence[Sequence[int]]) -> list[list[str]]:
        """The text of each token of completions, EOS included."""
        if self.pieces is None:
            return [[self.tokenizer.decode([i]) for i in row] for row in rows]
        return [[self.pieces[i] for i in row] for row in rows]

    @cached_property
    def parameters(self) -> int:
        """How many numbers the model has; tied weights count once."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def copy(self) -> "Policy":
        """A copy with weights of its own, which never learn."""
        return replace(self, model=copy.deepcopy(self.model).requires_grad_(False))

    @property
    def learned(self) -> list[Tensor]:
        """The tensors that training moves: all of them, or those of the LoRA adapter."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    @cached_property
    def context(self) -> int | None:
        """How many tokens prompt and completion may have together; None where the configuration names no limit."""
        limit = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return int(limit) if limit else None


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Make the 54-token tokenizer: one token a character, and the four tags as one token each.

    The tags are added tokens but not special ones: decoding with skip_special_tokens keeps them, so that a
    verifier sees them. The start-of-text token is part of the prompt's text, no template adds it.
    """
    vocabulary = {token: i for i, token in enumerate((*SPECIAL, *TAGS, *CHARACTERS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    names = {f"{name}_token": f"<{name}>" for name in ("pad", "bos", "eos", "unk")}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, padding_side="left", clean_up_tokenization_spaces=False, **names
    )


def _special_ids(tokenizer: Any) -> dict[str, Any]:
    return {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "bos", "eos")}


def small_config(tokenizer: Any, *, width: int = 64, layers: int = 2, heads: int = 4) -> GPT2Config:
    """Give the transformers configuration of the built-in model: GPT-2 with exact GELU and without dropout."""
    return GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=POSITIONS,
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        activation_function="gelu",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        **_special_ids(tokenizer),
    )


def small_llama(tokenizer: Any, *, width: int, layers: int, heads: int = 4) -> LlamaConfig:
    """Give the configuration of a small Llama with tied embeddings: 3.2 million parameters at width 256, 4 layers."""
    return LlamaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=POSITIONS,
        hidden_size=width,
        intermediate_size=8 * width // 3,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        tie_word_embeddings=True,
        **_special_ids(tokenizer),
    )


FAMILIES = ("gpt2", "llama")


def new_policy(*, seed: int, width: int = 64, layers: int = 2, heads: int = 4, family: str = "gpt2") -> Policy:
    """Give a small model with random weights, on the CPU."""
    tokenizer = make_tokenizer()
    torch.manual_seed(seed)
    sizes = {"width": width, "layers": layers, "heads": heads}
    if family == "llama":
        model: Any = LlamaForCausalLM(small_llama(tokenizer, **sizes))
    else:
        model = GPT2LMHeadModel(small_config(tokenizer, **sizes))
    return Policy(model.eval(), tokenizer, torch.device("cpu"))


def load_policy(start: str | os.PathLike[str], device: str = "auto", *, dtype: str = "auto") -> Policy:
    """Load a causal language model with its tokenizer: a built-in one, a folder, a GGUF file or a hub id (sources.py).

    dtype "auto" is float32, and for models from elsewhere bfloat16 on CUDA. Code that comes with a model is never run.
    A ValueError says what is wrong and what to do.
    """
    source, where = find_source(os.fspath(start)), pick_device(device)
    logging.disable_progress_bar()
    if source.built_in:
        model: Any = GPT2LMHeadModel.from_pretrained(source.place, local_files_only=True, dtype=torch.float32)
        tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(source.place, local_files_only=True)
    else:
        from grpo_core.live.pretrained import load_pretrained

        kind = {"auto": torch.bfloat16 if where.type == "cuda" else torch.float32}.get(dtype) or getattr(torch, dtype)
        model, tokenizer = load_pretrained(source, kind)
    model.to(where).eval()
    return Policy(model, tokenizer, where)


def save_policy(policy: Policy, folder: Path, *, half: bool = False) -> None:
    """Save weights, configuration and tokenizer the transformers way, an adapter merged into its model.

    half: the weights rounded to float16; the configuration goes on saying float32, so that they are read as float32.
    """
    logging.disable_progress_bar()
    model = policy.model
    if hasattr(model, "merge_and_unload"):
        model = copy.deepcopy(model).merge_and_unload()
    weights = {name: tensor.half() if half else tensor.clone() for name, tensor in model.state_dict().items()}
    if getattr(model.config.get_text_config(), "tie_word_embeddings", False):
        weights.pop("lm_head.weight", None)  # the embedding, which is saved
    model.save_pretrained(folder, state_dict=weights)
    policy.tokenizer.save_pretrained(folder)


def pick_device(wish: str = "auto") -> torch.device:
    """Choose CUDA, else MPS, else the CPU; a device asked for by name must be there (ValueError otherwise)."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if wish == "auto":
        return torch.device(next(name for name, is_there in there.items() if is_there))
    if not there.get(wish, False):
        found = ", ".join(name for name, is_there in there.items() if is_there)
        raise InputError("device {wish!r} is not on this machine: accepted are auto, {found}", wish=wish, found=found)
    return torch.device(wish)


def device_name(device: torch.device) -> str:
    """Say in words what a device is."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return device.type


def device_memory(device: torch.device) -> int:
    """How many bytes of memory a device has; on a CPU the machine's, or 8 GB where it does not say."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 8_000_000_000


def start_policy(config: RunConfig, start: str) -> Policy:
    """Load the policy that a run starts from: its own choice or the task's, with an adapter where it wants one."""
    from grpo_core.live.pretrained import add_lora, check_memory

    check_memory(config, start, pick_device(config.device))
    policy = load_policy(config.model or start, config.device, dtype=config.dtype)
    return add_lora(policy, config.lora_rank) if config.lora_rank else policy


def use_threads(policy: Policy) -> None:
    """Use one CPU thread for a tiny model: a second one gains nothing there and the pages need a core."""
    if policy.device.type == "cpu":
        torch.set_num_threads(1 if policy.parameters < 300_000 else max(1, (os.cpu_count() or 2) - 1))
