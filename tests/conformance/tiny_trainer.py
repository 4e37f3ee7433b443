"""A real GRPOTrainer on a model of a few thousand weights, made on the spot: no download, a second to build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.conformance import oracle  # sets HF_HUB_OFFLINE before anything of Hugging Face is imported

__all__ = ["oracle", "save_model", "tokenizer", "trainer"]
SYMBOLS = "0123456789+="


def tokenizer() -> Any:
    """Return a tokenizer with one token for each symbol."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {name: i for i, name in enumerate(("<pad>", "<eos>", "<bos>", "<unk>", *SYMBOLS))}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    raw.decoder = decoders.Fuse()
    special = {f"{name}_token": f"<{name}>" for name in ("pad", "eos", "bos", "unk")}
    return PreTrainedTokenizerFast(tokenizer_object=raw, padding_side="left", **special)


def save_model(folder: Path) -> str:
    """Write a one-layer Llama with random weights and return its path (TRL loads a reference model by path)."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=4 + len(SYMBOLS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=2,
        tie_word_embeddings=False,
        initializer_range=0.5,  # far from uniform, so that the policy has something to change
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return str(folder)


def trainer(folder: Path, reward_funcs: list[Any], *, cls: Any = None, config: Any = None, **settings: Any) -> Any:
    """Return a GRPOTrainer (or `cls`, with its `config`) on the CPU in float32, logging every step."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    arguments = {
        "output_dir": str(folder / "out"),
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "activation_checkpointing": False,
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 6,
        "logging_steps": 1,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "seed": 3,
    }
    data = Dataset.from_list([{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(5) for b in range(4)])
    return (cls or GRPOTrainer)(
        model=str(folder),
        reward_funcs=reward_funcs,
        args=(config or GRPOConfig)(**{**arguments, **settings}),
        train_dataset=data,
        processing_class=tokenizer(),
    )
