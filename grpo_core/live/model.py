"""The built-in small model: its tokenizer, its transformers configuration, and the shipped start weights."""

import os
import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, PreTrainedTokenizerFast
from transformers.models.gpt2.modeling_gpt2 import GPT2LMHeadModel
from transformers.utils import logging

ASSETS = Path(__file__).parent / "assets"
SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
CHARACTERS = string.digits + string.ascii_lowercase + " :,=+-*?.|"
POSITIONS = 96


@dataclass(frozen=True)
class Policy:
    """A causal language model with its tokenizer, on its device."""

    model: Any
    tokenizer: Any
    device: torch.device

    @cached_property
    def pieces(self) -> tuple[str, ...] | None:
        """The text of every token, where a text is simply its tokens' texts put together; else None."""
        fused = isinstance(self.tokenizer.backend_tokenizer.decoder, decoders.Fuse)
        return tuple(self.tokenizer.convert_ids_to_tokens(range(len(self.tokenizer)))) if fused else None

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
        """How many numbers the model learns; tied weights count once."""
        return sum(parameter.numel() for parameter in self.model.parameters())


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
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )


def new_policy(*, seed: int, width: int = 64, layers: int = 2, heads: int = 4) -> Policy:
    """Give the built-in model with random weights, on the CPU."""
    tokenizer = make_tokenizer()
    torch.manual_seed(seed)
    model = GPT2LMHeadModel(small_config(tokenizer, width=width, layers=layers, heads=heads))
    return Policy(model.eval(), tokenizer, torch.device("cpu"))


def load_policy(start: str | os.PathLike[str], device: str = "auto") -> Policy:
    """Load start weights: a name under assets/, or a folder that transformers can load a causal LM from."""
    folder = ASSETS / start if (ASSETS / start).is_dir() else Path(start)
    if not (folder / "config.json").is_file():
        raise ValueError(f"there are no start weights in {folder}: make them with python -m grpo_core.live.warm_start")
    where = pick_device(device)
    logging.disable_progress_bar()
    model: Any = GPT2LMHeadModel.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    model.to(where).eval()
    return Policy(model, tokenizer, where)


def save_policy(policy: Policy, folder: Path) -> None:
    """Save weights, configuration and tokenizer the transformers way."""
    weights = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    weights.pop("lm_head.weight")  # tied to the embedding, which is saved
    policy.model.save_pretrained(folder, state_dict=weights)
    policy.tokenizer.save_pretrained(folder)


def pick_device(wish: str = "auto") -> torch.device:
    """Choose CUDA, else MPS, else the CPU; a device asked for by name must be there (ValueError otherwise)."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if wish == "auto":
        return torch.device(next(name for name, is_there in there.items() if is_there))
    if not there.get(wish, False):
        found = ", ".join(name for name, is_there in there.items() if is_there)
        raise ValueError(f"device {wish!r} is not on this machine: accepted are auto, {found}")
    return torch.device(wish)


def device_name(device: torch.device) -> str:
    """Say in words what a device is."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return device.type


def use_threads(policy: Policy) -> None:
    """Use one CPU thread for a tiny model: a second one gains nothing there and the pages need a core."""
    if policy.device.type == "cpu":
        torch.set_num_threads(1 if policy.parameters < 300_000 else max(1, (os.cpu_count() or 2) - 1))
