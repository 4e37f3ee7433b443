"""What a run will take, said before it starts: memory and time of a step, from a model's config.json alone.

No weights are loaded and neither torch nor transformers: where a safetensors or GGUF file lies beside config.json, its
header gives the exact number of parameters. Everything here is rough: memory to a third, time to a factor of three.
"""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from grpo_core.live.config import RunConfig
from grpo_core.live.sources import Source, find_source
from grpo_core.memory import model_memory
from grpo_core.messages import InputError

_NAMES = {
    "width": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "vocabulary": ("vocab_size",),
}
_OPTIONAL = {
    "kv_heads": ("num_key_value_heads",),
    "head_width": ("head_dim",),
    "inner": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    "context": ("max_position_embeddings", "n_positions", "max_seq_len"),
}
_PLAIN_MLP = ("gpt2", "gpt_neo", "gpt_neox", "gptj", "opt", "bloom", "phi", "falcon", "starcoder2")
"""Model types whose MLP has two matrices; others have a gated one with three."""
_LEARNED_PLACES = ("gpt2", "gpt_neo", "opt")
_TIED = ("gpt2", "gpt_neo", "opt", "bloom", "gemma", "gemma2", "gemma3_text")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of a decoder that memory and time follow from; matrices: (inputs, outputs) of each of a layer's."""

    width: int
    layers: int
    heads: int
    vocabulary: int
    kv_heads: int
    head_width: int
    inner: int
    context: int | None
    gated: bool
    tied: bool
    places: int

    @property
    def matrices(self) -> list[tuple[int, int]]:
        """Inputs and outputs of the matrices of one layer."""
        heads, shared = self.heads * self.head_width, self.kv_heads * self.head_width
        attention = [(self.width, heads), (self.width, shared), (self.width, shared), (heads, self.width)]
        return attention + [(self.width, self.inner)] * (1 + self.gated) + [(self.inner, self.width)]

    @property
    def body(self) -> int:
        """Parameters of the layers' matrices."""
        return self.layers * sum(a * b for a, b in self.matrices)

    @property
    def parameters(self) -> int:
        """All parameters; biases and norms only roughly."""
        embedding = self.vocabulary * self.width
        small = self.layers * ((2 if self.gated else 13) * self.width) + 2 * self.width
        return embedding * (1 if self.tied else 2) + self.places * self.width + self.body + small

    def lora(self, rank: int) -> int:
        """Parameters of an adapter of that rank on every matrix of the layers."""
        return self.layers * rank * sum(a + b for a, b in self.matrices)


def shape_of(config: Mapping[str, Any]) -> Shape:
    """Read a decoder's sizes from what its config.json says; ValueError names what is missing.

    >>> shape_of({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    ...           "intermediate_size": 170, "vocab_size": 54}).body
    98048
    """
    own = {**config, **(config.get("text_config") or {})}
    found = {name: _first(own, keys) for name, keys in {**_NAMES, **_OPTIONAL}.items()}
    missing = [keys[0] for name, keys in _NAMES.items() if not found[name]]
    if missing:
        raise InputError("config.json does not say {names}: is it a causal language model's?", names=", ".join(missing))
    kind, width, heads = str(own.get("model_type", "")), found["width"], found["heads"]
    assert width is not None
    assert heads is not None
    return Shape(
        width=width,
        layers=found["layers"] or 1,
        heads=heads,
        vocabulary=found["vocabulary"] or 1,
        kv_heads=found["kv_heads"] or heads,
        head_width=found["head_width"] or width // heads,
        inner=found["inner"] or 4 * width,
        context=found["context"],
        gated=kind not in _PLAIN_MLP,
        tied=bool(own.get("tie_word_embeddings", kind in _TIED)),
        places=(found["context"] or 0) if kind in _LEARNED_PLACES else 0,
    )


def _first(config: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """The first of these entries that is a positive whole number."""
    values = (config.get(name) for name in names)
    return next((v for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 0), None)


def activation_bytes(shape: Shape, *, bytes_per_number: int = 4, trained: bool = True) -> float:
    """Bytes that one token leaves for the backward pass: what each layer's matrices and norms take, and the logits.

    Counted on transformers 5.24's Llama and GPT-2 by what autograd saves; attention weights are not kept (SDPA). Logits
    and their gradient are there twice.
    """
    heads, shared = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    layer = 6 * shape.width + 3 * heads + 4 * shared + (4 if shape.gated else 3) * shape.inner
    logits = (2 if trained else 1) * shape.vocabulary
    return float(bytes_per_number * (shape.layers * layer * trained + logits))


# --- what a folder says ---------------------------------------------------------------------------------------------


def read_config(folder: Path) -> dict[str, Any]:
    """Read config.json; ValueError where there is none or it is no object."""
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except OSError:
        raise InputError(
            "{folder} has no config.json: give a folder that transformers has saved", folder=folder
        ) from None
    except ValueError:
        raise InputError("config.json in {folder} is not JSON: save the model again", folder=folder) from None
    if not isinstance(found, dict):
        raise InputError("config.json in {folder} is not a JSON object: save the model again", folder=folder)
    return found


def stored_parameters(folder: Path) -> int | None:
    """Count the parameters that the headers of the folder's safetensors files name; None where there are none."""
    total = 0
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with path.open("rb") as file:
                (size,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(size)) if size < 50_000_000 else {}
        except (OSError, ValueError, struct.error):
            return None
        total += sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
    return total or None


_GGUF_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_GGUF_KEYS = {
    "embedding_length": "hidden_size", "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
    "feed_forward_length": "intermediate_size",
    "context_length": "max_position_embeddings", "vocab_size": "vocab_size",
}  # fmt: skip


def read_gguf(path: Path) -> tuple[dict[str, Any], int]:
    """Read from a GGUF file's header what config.json would say, and count the parameters; ValueError if it is none."""
    try:
        with path.open("rb") as file:
            return _gguf(file)
    except (OSError, struct.error, UnicodeDecodeError, KeyError, OverflowError, MemoryError):
        raise InputError("{file} is not a GGUF file that can be read: download it again", file=path.name) from None


def _gguf(file: Any) -> tuple[dict[str, Any], int]:
    magic, version, tensors, entries = struct.unpack("<4sIQQ", file.read(24))
    if magic != b"GGUF" or version < 2 or entries > 10_000 or tensors > 100_000:
        raise KeyError("not GGUF")
    said = {}
    for _ in range(entries):
        name = _gguf_text(file)
        said[name] = _gguf_value(file, *struct.unpack("<I", file.read(4)))
    kind = str(said.get("general.architecture", ""))
    config: dict[str, Any] = {own: said.get(f"{kind}.{key}") for key, own in _GGUF_KEYS.items()}
    config["vocab_size"] = config["vocab_size"] or said.get("tokenizer.ggml.tokens")
    count, names = 0, set()
    for _ in range(tensors):
        names.add(_gguf_text(file))
        (rank,) = struct.unpack("<I", file.read(4))
        count += math.prod(struct.unpack(f"<{rank}Q", file.read(8 * rank)))
        file.read(12)
    return {**config, "model_type": kind, "tie_word_embeddings": "output.weight" not in names}, count


def _gguf_text(file: Any) -> str:
    (size,) = struct.unpack("<Q", file.read(8))
    if size > 1_000_000:
        raise KeyError("no text is that long")
    return str(file.read(size).decode("utf-8"))


def _gguf_value(file: Any, kind: int) -> Any:
    """One value; of an array only its length."""
    if kind == 8:
        size = struct.unpack("<Q", file.read(8))[0]
        file.seek(size, 1)
        return None if size > 200 else _back(file, size)
    if kind != 9:
        form = "<" + _GGUF_NUMBERS[kind]
        return struct.unpack(form, file.read(struct.calcsize(form)))[0]
    inner, count = struct.unpack("<IQ", file.read(12))
    if inner == 8:
        for _ in range(count):
            file.seek(struct.unpack("<Q", file.read(8))[0], 1)
    else:
        file.seek(count * struct.calcsize("<" + _GGUF_NUMBERS[inner]), 1)
    return count


def _back(file: Any, size: int) -> str:
    file.seek(-size, 1)
    return str(file.read(size).decode("utf-8"))


@dataclass(frozen=True)
class Known:
    """What is known of a model that is not loaded: its shape and its parameters, counted exactly or not."""

    shape: Shape
    parameters: int
    exact: bool


def known_model(name: str) -> Known:
    """Look a model up (see sources.find_source); ValueError where there is none, or none of it on this machine yet."""
    source = find_source(name)
    folder = source.folder or _from_hub(source)
    if source.gguf:
        config, count = read_gguf(folder / source.gguf)
        return Known(shape_of(config), count, True)
    shape, stored = shape_of(read_config(folder)), stored_parameters(folder)
    return Known(shape, stored or shape.parameters, stored is not None)


def _from_hub(source: Source) -> Path:
    """The folder where the hub's cache keeps a model that was downloaded before."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(source.hub, source.gguf or "config.json")
    if not isinstance(found, str):
        raise InputError(
            "{name} is not on this machine yet: nothing can be said of it before it is downloaded", name=source.hub
        )
    return Path(found).parent


# --- the estimate -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a step does: prompts, completions a prompt, tokens of each, inner epochs; and how it is trained.

    reference: whether log-probabilities under a reference are asked for. lora: the adapter's rank, 0 for all weights.
    half: bfloat16 instead of float32.
    """

    prompts: int
    group_size: int
    prompt_tokens: int
    new_tokens: int
    inner_epochs: int = 1
    reference: bool = True
    lora: int = 0
    half: bool = False

    @property
    def rows(self) -> int:
        """Completions in a step."""
        return self.prompts * self.group_size


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Bytes by part, and seconds of a step (None: cannot be said). learned: how many numbers are trained."""

    parts: Mapping[str, float]
    parameters: int
    learned: int
    seconds: float | None

    @property
    def total(self) -> float:
        """All bytes."""
        return sum(self.parts.values())


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What a device does: operations a second in large products, bytes of memory a second, seconds for any one call."""

    operations: float
    bandwidth: float
    overhead: float


GPUS: Mapping[str, Speed] = MappingProxyType(
    {
        "H200": Speed(operations=989e12, bandwidth=4.8e12, overhead=1e-5),
        "H100": Speed(operations=989e12, bandwidth=3.3e12, overhead=1e-5),
        "A100": Speed(operations=312e12, bandwidth=1.9e12, overhead=1e-5),
        "L40": Speed(operations=181e12, bandwidth=0.86e12, overhead=1e-5),
        "L4": Speed(operations=121e12, bandwidth=0.3e12, overhead=1e-5),
        "A10": Speed(operations=125e12, bandwidth=0.6e12, overhead=1e-5),
        "V100": Speed(operations=125e12, bandwidth=0.9e12, overhead=1e-5),
        "T4": Speed(operations=65e12, bandwidth=0.3e12, overhead=1e-5),
        "4090": Speed(operations=165e12, bandwidth=1.0e12, overhead=1e-5),
        "3090": Speed(operations=71e12, bandwidth=0.94e12, overhead=1e-5),
    }
)
"""Dense bfloat16 or float16 peaks from the makers' data sheets, by a part of the device's name."""


def token_room(shape: Shape, parameters: int, memory: int, *, half: bool = False) -> int | None:
    """How many tokens a pass may keep for its backward pass in a quarter of the memory; None (all) for small models.

    From the memory that a device has, not from what is free: the same run then gives the same numbers.
    """
    if parameters < 10_000_000:
        return None
    return max(1, int(0.25 * memory / activation_bytes(shape, bytes_per_number=2 if half else 4)))


def work_of(config: RunConfig, *, prompt_tokens: int, half: bool = False) -> Work:
    """Give the work of a run's steps; prompt_tokens: of a long prompt."""
    return Work(
        prompts=config.prompts_per_step * (1 + config.refills),
        group_size=config.group_size,
        prompt_tokens=prompt_tokens,
        new_tokens=config.max_new_tokens,
        inner_epochs=config.inner_epochs,
        reference=config.probe or config.beta > 0,
        lora=config.lora_rank,
        half=half,
    )


def estimate(
    shape: Shape, work: Work, *, speed: Speed | None, room: int | None, parameters: int | None = None
) -> Estimate:
    """Say what a run takes. room: how many tokens a pass keeps for its backward pass (engines.token_room), None: all.

    Seconds need the device's speed. parameters: the exact number where it is known.

    >>> config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 54, "n_positions": 96}
    >>> tiny = shape_of(config)
    >>> work = Work(prompts=8, group_size=8, prompt_tokens=19, new_tokens=14)
    >>> round(estimate(tiny, work, speed=None, room=None).parts["optimizer"])
    877568
    """
    count = parameters or shape.parameters
    learned = shape.lora(work.lora) if work.lora else count
    own = model_memory("policy", count - (learned if not work.lora else 0), precision="bf16" if work.half else "fp32")
    precision = "mixed" if work.half and not work.lora else "fp32"
    trained = model_memory("policy", learned, precision=precision)
    size = 2 if work.half else 4
    tokens = work.prompts * work.prompt_tokens + work.rows * work.new_tokens
    kept = tokens if room is None else min(tokens, max(room, work.prompt_tokens + work.new_tokens))
    places = work.rows * (work.prompt_tokens + work.new_tokens)
    cache = 2 * shape.layers * shape.kv_heads * shape.head_width * size * places
    parts = {
        "weights": own.weights + trained.weights,
        "gradients": trained.gradients,
        "optimizer": trained.optimizer,
        "reference": float(size * count) if work.reference and not work.lora else 0.0,
        "activations": kept * activation_bytes(shape, bytes_per_number=size),
        "cache": float(cache + work.rows * shape.vocabulary * 16),
    }
    seconds = None if speed is None else step_seconds(shape, work, speed, count)
    return Estimate(parts=parts, parameters=count, learned=learned, seconds=seconds)


def step_seconds(shape: Shape, work: Work, speed: Speed, parameters: int) -> float:
    """Seconds of a step: tokens times parameters for the products, weights read once a decoded token, and calls.

    A forward pass is 2 operations a parameter and token, a backward pass 4 more, of which an adapter saves 2.
    """
    per_token = 2.0 * (shape.body + shape.vocabulary * shape.width)
    new, all_tokens = work.rows * work.new_tokens, work.prompts * work.prompt_tokens + work.rows * work.new_tokens
    passes = (2 if work.lora else 3) * work.inner_epochs + 1 + work.reference  # update, probe, reference
    products = per_token * (all_tokens * passes + new) / (0.4 * speed.operations)
    reading = work.new_tokens * parameters * (2 if work.half else 4) / speed.bandwidth
    calls = shape.layers * 30 * (work.new_tokens + 3 * passes) * speed.overhead
    return products + reading + calls


def evaluation_seconds(shape: Shape, config: RunConfig, speed: Speed, *, prompt_tokens: int, parameters: int) -> float:
    """Seconds that all evaluations of a run take: every prompt greedily and once sampled, each fourth time more."""
    per_token = 2.0 * (shape.body + shape.vocabulary * shape.width)
    count = 2 + config.steps // config.eval_every
    thorough = 2 + count // 4
    answers = config.eval_prompts * (2 * (count - thorough) + (1 + config.eval_samples) * thorough)
    tokens = answers * config.max_new_tokens + count * config.eval_prompts * prompt_tokens
    calls = count * config.max_new_tokens * (shape.layers * 30 * speed.overhead + 4 * parameters / speed.bandwidth)
    return tokens * per_token / (0.4 * speed.operations) + calls
