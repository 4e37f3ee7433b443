"""What is said of memory and time before a run: counted against real models of transformers and what autograd keeps."""

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from gguf import GGUFWriter
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

from grpo_core.live.config import RunConfig
from grpo_core.live.estimates import (
    Speed,
    Work,
    activation_bytes,
    estimate,
    evaluation_seconds,
    known_model,
    read_config,
    read_gguf,
    shape_of,
    stored_parameters,
    token_room,
    work_of,
)
from grpo_core.live.logprobs import token_logps
from grpo_core.live.machine import this_machine
from grpo_core.live.model import Policy, make_tokenizer
from grpo_core.live.pretrained import add_lora
from grpo_core.live.sources import ASSETS, BUILT_IN
from grpo_core.live.update import Optimizer

ROOT = Path(__file__).resolve().parents[2]
SIZES = {
    "vocab_size": 1000,
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
}
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2}
CONFIGS = {
    "llama": LlamaConfig(**SIZES, num_key_value_heads=2),
    "llama tied": LlamaConfig(**SIZES, num_key_value_heads=8, tie_word_embeddings=True),
    "qwen2": Qwen2Config(**SIZES, num_key_value_heads=2, **SPECIAL),
    "qwen3": Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=32, **SPECIAL),
    "mistral": MistralConfig(**SIZES, num_key_value_heads=2),
    "gpt2": GPT2Config(vocab_size=1000, n_embd=128, n_layer=4, n_head=8, n_positions=512, **SPECIAL),
}
WORK = Work(prompts=8, group_size=8, prompt_tokens=19, new_tokens=14)


@pytest.fixture(params=CONFIGS)
def model(request):
    return AutoModelForCausalLM.from_config(CONFIGS[request.param]).eval()


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def test_parameters_follow_from_the_configuration(model):
    assert shape_of(model.config.to_dict()).parameters == pytest.approx(count(model), rel=2e-3)


def test_activations_are_what_autograd_keeps(model):
    """Counted on one forward pass: every tensor that waits for the backward pass, weights apart, each storage once."""
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.randint(0, 1000, (4, 64), generator=torch.Generator().manual_seed(0))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        logp = token_logps(model(input_ids=ids).logits, ids)
    assert logp.requires_grad
    logits_gradient = 4 * 1000
    measured = sum(kept.values()) / ids.numel() + logits_gradient
    assert activation_bytes(shape_of(model.config.to_dict())) == pytest.approx(measured, rel=1 / 3)


@pytest.mark.parametrize("rank", [1, 8])
def test_an_adapter_has_the_size_that_is_promised(rank):
    for name in ("llama", "qwen3", "gpt2"):
        model = AutoModelForCausalLM.from_config(CONFIGS[name])
        promised = shape_of(model.config.to_dict()).lora(rank)
        policy = add_lora(Policy(model, make_tokenizer(), torch.device("cpu")), rank)
        own = sum(tensor.numel() for tensor in policy.learned)
        # GPT-2 has one matrix for queries, keys and values: its adapter shares what the others have thrice
        assert own == promised if name != "gpt2" else 0.6 * promised < own < promised


def test_the_parts_are_the_tensors_that_training_makes():
    model = LlamaForCausalLM(CONFIGS["llama tied"])
    shape, numbers = shape_of(model.config.to_dict()), count(model)
    parts = estimate(shape, WORK, speed=None, room=None, parameters=numbers).parts
    optimizer = Optimizer(model, learning_rate=1e-3)
    model(input_ids=torch.ones(1, 3, dtype=torch.long)).logits.sum().backward()
    optimizer.step(learning_rate=1e-3, max_norm=1.0)
    state = optimizer._adam.state[optimizer.weights]
    assert parts["weights"] == optimizer.weights.nbytes
    assert parts["gradients"] == optimizer.gradient.nbytes
    assert parts["optimizer"] == state["exp_avg"].nbytes + state["exp_avg_sq"].nbytes
    assert parts["reference"] == optimizer.weights.nbytes


def test_what_saves_memory_saves_it_in_the_estimate():
    shape = shape_of(
        {**SIZES, "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32}
    )
    full = estimate(shape, WORK, speed=None, room=None)
    lora = estimate(shape, Work(**{**vars(WORK), "lora": 16}), speed=None, room=None)
    half = estimate(shape, Work(**{**vars(WORK), "lora": 16, "half": True}), speed=None, room=None)
    parts = estimate(shape, WORK, speed=None, room=100)
    free = estimate(shape, Work(**{**vars(WORK), "reference": False}), speed=None, room=None)
    assert full.total > 1.2 * free.total > 3 * lora.total > 4 * half.total
    assert parts.parts["activations"] < 0.2 * full.parts["activations"]
    assert lora.learned < 0.02 * lora.parameters


def test_time_grows_with_the_work():
    shape, speed = shape_of(CONFIGS["llama"].to_dict()), Speed(operations=1e11, bandwidth=1e10, overhead=1e-5)
    seconds = [
        estimate(shape, Work(**{**vars(WORK), **change}), speed=speed, room=None).seconds
        for change in ({}, {"group_size": 16}, {"new_tokens": 28}, {"inner_epochs": 2})
    ]
    assert all(more > seconds[0] for more in seconds[1:])
    assert estimate(shape, WORK, speed=None, room=None).seconds is None


def test_evaluations_take_their_share():
    shape, speed = shape_of(CONFIGS["llama"].to_dict()), Speed(operations=1e11, bandwidth=1e10, overhead=1e-5)

    def seconds(**settings):
        return evaluation_seconds(shape, RunConfig(**settings), speed, prompt_tokens=20, parameters=10**6)

    assert seconds(eval_every=60) < seconds(eval_every=5) < seconds(eval_every=5, eval_prompts=500)
    assert seconds(eval_samples=1) < seconds(eval_samples=16)


def test_small_models_need_no_parts_and_large_ones_get_room_by_memory():
    shape = shape_of({**SIZES, "model_type": "llama"})
    assert token_room(shape, 1_000_000, 10**9) is None
    assert token_room(shape, 10**9, 10**9) == int(0.25e9 / activation_bytes(shape))
    assert token_room(shape, 10**9, 1) == 1


def test_the_work_of_a_run():
    work = work_of(RunConfig(refills=2, probe=False, lora_rank=4), prompt_tokens=20)
    assert (work.rows, work.reference, work.lora) == (3 * 64, False, 4)
    assert work_of(RunConfig(beta=0.1, probe=False), prompt_tokens=20).reference


# What a folder says


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_models_are_counted_exactly(name):
    known = known_model(name)
    assert (known.parameters, known.exact) == (BUILT_IN[name], True)
    assert known.shape.parameters == BUILT_IN[name]


def test_a_folder_without_weights_is_estimated(tmp_path):
    (tmp_path / "config.json").write_text((ASSETS / "shell_game" / "config.json").read_text())
    known = known_model(str(tmp_path))
    assert (known.parameters, known.exact) == (109_696, False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", "not JSON"), ("[]", "not a JSON object"), ("{}", "does not say hidden_size"), (None, "has no config.json"),
     ('{"hidden_size": true, "num_hidden_layers": -2}', "hidden_size, num_hidden_layers")],
)  # fmt: skip
def test_a_config_that_says_nothing(tmp_path, text, expected):
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=expected):
        shape_of(read_config(tmp_path))


@pytest.mark.parametrize("data", [b"", b"\xff" * 8, struct.pack("<Q", 4) + b"nope", struct.pack("<Q", 2) + b"{}"])
def test_weights_that_cannot_be_read_are_not_counted(tmp_path, data):
    (tmp_path / "model.safetensors").write_bytes(data)
    assert stored_parameters(tmp_path) is None


def test_a_hub_model_that_is_not_here_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ValueError, match="org/name is not on this machine yet"):
        known_model("org/name")


def test_a_gguf_header(tmp_path):
    path = tmp_path / "own.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_embedding_length(64)
    writer.add_block_count(2)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_feed_forward_length(96)
    writer.add_context_length(512)
    writer.add_token_list(["a", "b", "é"])
    writer.add_token_scores([0.0, 1.0, 2.0])
    writer.add_chat_template("x" * 5000)
    writer.add_tensor("token_embd.weight", torch.zeros(3, 64).numpy())
    writer.add_tensor("output_norm.weight", torch.zeros(64).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    config, numbers = read_gguf(path)
    assert numbers == 3 * 64 + 64
    shape = shape_of(config)
    assert (shape.width, shape.layers, shape.heads, shape.kv_heads, shape.inner) == (64, 2, 4, 2, 96)
    assert (shape.vocabulary, shape.context, shape.tied) == (3, 512, True)
    whole = path.read_bytes()
    for size in (0, 10, 30, 200, 2000):
        (tmp_path / "broken.gguf").write_bytes(whole[:size])
        with pytest.raises(ValueError, match="not a GGUF file"):
            read_gguf(tmp_path / "broken.gguf")
    (tmp_path / "other.gguf").write_bytes(json.dumps({"no": "gguf"}).encode() * 9)
    with pytest.raises(ValueError, match="not a GGUF file"):
        read_gguf(tmp_path / "other.gguf")


def test_this_machine_is_described_without_torch():
    code = (
        "import sys; from grpo_core.live import estimates, machine, task_files; m = machine.this_machine('cpu');"
        "assert m.free is None or 0 < m.free <= m.memory; assert min(m.speed.operations, m.speed.bandwidth) > 1e7;"
        "assert estimates.known_model('shell_game').exact; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
    assert this_machine("cpu").kind == "cpu"
