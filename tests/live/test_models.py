"""The models a run can start from: built-in sizes, folders, adapters, and what is said of those that do not work."""

import itertools
import json
import warnings

import pytest
import torch
from safetensors.torch import load_file
from transformers import BloomConfig, BloomForCausalLM, LlamaConfig, LlamaForCausalLM

from grpo_core.live.checkpoints import Checkpoints
from grpo_core.live.config import RunConfig
from grpo_core.live.engines import Completions, GeneralEngine, Reference, make_engine
from grpo_core.live.gpt2 import Gpt2Engine
from grpo_core.live.model import ASSETS, FAMILIES, Policy, load_policy, make_tokenizer, new_policy, save_policy
from grpo_core.live.pretrained import add_lora, check_engine, needs
from grpo_core.live.rollout import encode
from grpo_core.live.sources import BUILT_IN, find_source
from grpo_core.live.tasks import TASKS
from grpo_core.live.trainer import train
from grpo_core.live.update import Optimizer
from tests.live.test_trainer import timeless

FAST = {"pace": None, "eval_prompts": 20, "device": "cpu"}
LLAMA = {
    "vocab_size": 54, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 64,
}  # fmt: skip


def saved(folder, model):
    """A folder as transformers saves it, with the built-in tokenizer."""
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def llama_folder(tmp_path):
    torch.manual_seed(0)
    return saved(tmp_path / "llama", LlamaForCausalLM(LlamaConfig(**LLAMA)))


# Built-in sizes


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_model_has_the_size_that_is_promised(name):
    policy = load_policy(name, "cpu")
    assert policy.parameters == BUILT_IN[name]
    assert policy.model.dtype == torch.float32
    assert isinstance(make_engine(policy), Gpt2Engine)
    assert (ASSETS / name / "model.safetensors").stat().st_size < 1_000_000


def test_every_start_of_a_task_is_built_in():
    assert {task.start for task in TASKS.values()} <= set(BUILT_IN)


def test_half_the_size_is_the_same_model_to_three_digits(tmp_path):
    policy = new_policy(seed=3, width=32)
    save_policy(policy, tmp_path / "half", half=True)
    stored = load_file(tmp_path / "half" / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    again = load_policy(str(tmp_path / "half"), "cpu")
    assert again.model.dtype == torch.float32
    for own, other in zip(policy.model.parameters(), again.model.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-3, atol=1e-6)


def test_the_wide_model_learns_to_think():
    events = list(train(RunConfig(model="shell_game_wide", steps=50, eval_every=10, **{**FAST, "eval_prompts": 100})))
    assert events[0]["parameters"] == 416_000
    accuracy = {event["step"]: event["accuracy"] for event in events if event["event"] == "eval"}
    assert accuracy[0] < 0.4
    assert accuracy[50] >= 0.9


@pytest.mark.parametrize("family", FAMILIES)
def test_the_warm_start_can_make_either_family(family):
    policy = new_policy(seed=0, width=32, family=family)
    assert policy.model.config.model_type == family
    check_engine(policy, make_engine(policy))


# Where models are


def test_sources(tmp_path, llama_folder):
    assert find_source("shell_game").built_in
    assert find_source(str(llama_folder)).folder == llama_folder
    assert find_source("org/name").hub == "org/name"
    gguf = find_source("org/name?gguf=small.Q4.gguf")
    assert (gguf.hub, gguf.gguf) == ("org/name", "small.Q4.gguf")
    (tmp_path / "own.gguf").write_bytes(b"GGUF")
    for name in (tmp_path / "own.gguf", f"{tmp_path}?gguf=own.gguf"):
        source = find_source(str(name))
        assert (source.folder, source.gguf, source.built_in) == (tmp_path, "own.gguf", False)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", "there is no model at ''"),
        ("no such start", r"python -m grpo_core\.live\.warm_start"),
        ("../grpo_core", "there is no model at"),
        ("/no/such/folder", "there is no model at"),
        ("{folder}", "has no config.json"),
        ("{folder}?gguf=none.gguf", "has no none.gguf"),
        ("{folder}?gguf=../outside.gguf", "has no outside.gguf"),
    ],
)
def test_what_is_no_model_is_refused_with_what_is_accepted(tmp_path, name, expected):
    (tmp_path / "outside.gguf").write_bytes(b"GGUF")
    folder = tmp_path / "empty"
    folder.mkdir()
    with pytest.raises(ValueError, match=expected) as caught:
        find_source(name.format(folder=folder))
    assert "hub id like org/name" in str(caught.value)


# Any causal language model


def test_a_folder_trains(llama_folder):
    events = list(
        train(RunConfig(model=str(llama_folder), task="shell_game_format", steps=2, learning_rate=1e-3, **FAST))
    )
    assert events[0]["model"] == "LlamaForCausalLM"
    assert events[-1]["state"] == "finished"


BROKEN = ("config", "weights", "tokenizer", "eos", "tokenizer of another model", "encoder", "template", "other weights")


@pytest.mark.parametrize("broken", BROKEN)
def test_an_unreadable_model_says_what_is_wrong_and_what_to_do(llama_folder, broken):
    expected = "give a folder that transformers has saved"
    if broken == "config":
        (llama_folder / "config.json").write_text("{not json")
    elif broken == "weights":
        (llama_folder / "model.safetensors").write_bytes(b"\x00" * 100)
    elif broken == "tokenizer":
        for path in llama_folder.glob("tokenizer*"):
            path.unlink()
        expected = "has no tokenizer"
    elif broken == "eos":
        path = llama_folder / "tokenizer_config.json"
        settings = json.loads(path.read_text())
        settings.pop("eos_token")
        path.write_text(json.dumps(settings))
        expected = "no end-of-text token"
    elif broken == "tokenizer of another model":
        saved(llama_folder, LlamaForCausalLM(LlamaConfig(**{**LLAMA, "vocab_size": 40})))
        expected = "54 tokens, 40 embeddings"
    elif broken == "template":
        (llama_folder / "chat_template.jinja").write_text("{{ nothing.at.all() }}")
        expected = "mend or remove it"
    elif broken == "other weights":  # transformers would fill in random ones
        path = llama_folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "num_hidden_layers": 3}))
        expected = "are missing, 'model.layers.2"
    else:
        settings = json.loads((llama_folder / "config.json").read_text())
        (llama_folder / "config.json").write_text(json.dumps({**settings, "model_type": "vit"}))
    with warnings.catch_warnings(action="ignore"), pytest.raises(ValueError, match=expected):
        load_policy(str(llama_folder), "cpu")


def test_a_model_that_is_too_large_is_refused_before_it_is_loaded(llama_folder):
    path = llama_folder / "config.json"
    sizes = {"hidden_size": 65_536, "intermediate_size": 262_144, "num_hidden_layers": 200, "num_attention_heads": 64}
    path.write_text(json.dumps({**json.loads(path.read_text()), **sizes, "head_dim": 1024}))
    (llama_folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"needs [0-9.]+ GB to be trained .* are free: train an adapter \(lora_rank\)"):
        next(train(RunConfig(model=str(llama_folder), **FAST)))


def test_code_that_comes_with_a_model_never_runs(llama_folder, tmp_path):
    trace = tmp_path / "ran"
    (llama_folder / "own.py").write_text(f"open({str(trace)!r}, 'w')\nclass Config: pass\nclass Model: pass\n")
    path = llama_folder / "config.json"
    settings = json.loads(path.read_text())
    settings |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}}
    path.write_text(json.dumps(settings))
    with warnings.catch_warnings(action="ignore"), pytest.raises(ValueError, match=r"tokenizer|loaded"):
        load_policy(str(llama_folder), "cpu")
    assert not trace.exists()


def test_a_model_without_positions_in_its_forward_pass_trains_too():
    torch.manual_seed(0)
    config = BloomConfig(
        vocab_size=54, hidden_size=32, n_layer=2, n_head=4, pad_token_id=0, bos_token_id=1, eos_token_id=2
    )
    policy = Policy(BloomForCausalLM(config).eval(), make_tokenizer(), torch.device("cpu"))
    check_engine(policy, make_engine(policy))


def test_an_engine_that_gives_other_numbers_is_refused(llama_folder):
    policy = load_policy(str(llama_folder), "cpu")

    class Wrong(GeneralEngine):
        def logps(self, plan, *, temperature=1.0):
            return super().logps(plan, temperature=temperature) - 0.5

    with pytest.raises(ValueError, match="other numbers with a cache than without"):
        check_engine(policy, Wrong(policy.model))


def test_a_chat_template_is_used(llama_folder):
    policy = load_policy(str(llama_folder), "cpu")
    assert policy.prompt_text("1:12=") == "<bos>1:12="
    policy.tokenizer.chat_template = (
        "{% for m in messages %}<bos>{{ m.role }}: {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}ai: {% endif %}"
    )
    assert policy.prompt_text("1:12=") == "<bos>user: 1:12=\nai: "
    ids = encode(policy, ["1:12="]).ids[0].tolist()
    assert policy.tokenizer.convert_ids_to_tokens(ids)[:6] == ["<bos>", "u", "s", "e", "r", ":"]


@pytest.mark.parametrize("tied", [True, False])
def test_what_is_saved_is_what_is_read_also_with_an_adapter(tmp_path, tied):
    torch.manual_seed(1)
    plain = Policy(
        LlamaForCausalLM(LlamaConfig(**LLAMA, tie_word_embeddings=tied)).eval(), make_tokenizer(), torch.device("cpu")
    )
    save_policy(plain, tmp_path / "plain")
    adapted = add_lora(load_policy(str(tmp_path / "plain"), "cpu"), 2)
    with torch.no_grad():
        for tensor in adapted.learned:
            tensor.normal_(std=0.1)
    save_policy(adapted, tmp_path / "merged")
    ids = torch.arange(3, 15)[None]
    logits = {}
    for name, policy in (("plain", plain), ("merged", adapted)):
        again = load_policy(str(tmp_path / name), "cpu")
        assert again.parameters == plain.parameters
        logits[name] = again.model(input_ids=ids).logits
        torch.testing.assert_close(logits[name], policy.model(input_ids=ids).logits, atol=1e-5, rtol=0)
    assert (logits["plain"] - logits["merged"]).abs().max() > 1e-3


# Precision


def test_half_precision_loses_no_small_steps(llama_folder):
    policy = load_policy(str(llama_folder), "cpu", dtype="bfloat16")
    assert policy.model.dtype == torch.bfloat16
    tensor = policy.model.model.layers[0].mlp.up_proj.weight
    before = tensor.detach().clone()
    optimizer = Optimizer(policy.model, learning_rate=1e-5)
    weights = optimizer.weights.detach().clone()
    moved = []
    for step in range(300):
        optimizer.zero()
        tensor.grad.fill_(1.0)
        optimizer.step(learning_rate=1e-5, max_norm=1e9)
        if step in (0, 299):
            moved.append((tensor.detach() != before).float().mean().item())
    assert tensor.dtype == torch.bfloat16
    assert moved[0] < 0.3 < 0.9 < moved[1]
    assert (optimizer.weights - weights).abs().max().item() == pytest.approx(300 * 1e-5, rel=1e-2)
    kept = {name: value.clone() for name, value in optimizer.snapshot().items()}
    optimizer.step(learning_rate=1.0, max_norm=1e9)
    optimizer.restore(kept)
    assert torch.equal(
        tensor.detach().float(), kept["weights"].bfloat16().float()[_place(policy, tensor)].view(tensor.shape)
    )


def _place(policy, tensor):
    """Where a parameter stands in the vector of all."""
    start = 0
    for parameter in policy.learned:
        if parameter is tensor:
            return slice(start, start + parameter.numel())
        start += parameter.numel()
    raise AssertionError


@pytest.mark.parametrize("rank", [0, 4])
def test_a_run_in_half_precision(llama_folder, rank):
    config = RunConfig(
        model=str(llama_folder),
        dtype="bfloat16",
        lora_rank=rank,
        task="shell_game_length_bonus",
        steps=2,
        beta=0.1,
        **FAST,
    )
    events = list(train(config))
    assert events[-1]["state"] == "finished"
    assert [event["grad_norm"] > 0 for event in events if event["event"] == "step"] == [True, True]


# Rows in parts


@pytest.mark.parametrize("room", [1, 30, 60, 10_000])
def test_rows_in_parts_give_the_same_values_and_gradients(llama_folder, room):
    policy = load_policy(str(llama_folder), "cpu")
    prompts = encode(policy, ["1:12=", "4:13,24=", "5:23="])
    tokens = torch.randint(3, 54, (6, 5), generator=torch.Generator().manual_seed(0))
    completions = Completions(tokens, torch.tensor([5, 1, 3, 4, 2, 5]), 2)
    found = []
    for engine in (GeneralEngine(policy.model), GeneralEngine(policy.model, room=room)):
        policy.model.zero_grad()
        logp = engine.logps(engine.plan(prompts, completions), temperature=0.7)
        (logp * torch.arange(30).view(6, 5)).sum().backward()
        found.append((logp.detach(), torch.cat([p.grad.flatten() for p in policy.model.parameters()])))
    (whole, gradient), (parts, in_parts) = found
    torch.testing.assert_close(parts, whole, atol=1e-5, rtol=0)
    assert (in_parts - gradient).norm() < 1e-5 * gradient.norm()


# Adapters and the reference


def test_a_package_that_is_missing_is_named():
    with pytest.raises(ValueError, match="LoRA adapters need the package no_such_package: pip install no_such_package"):
        needs("no_such_package", "LoRA adapters")


@pytest.mark.parametrize("start", ["llama", "shell_game"])
def test_an_adapter_starts_as_the_model_and_only_it_learns(llama_folder, start):
    start = str(llama_folder) if start == "llama" else start
    plain, policy = load_policy(start, "cpu"), add_lora(load_policy(start, "cpu"), 4)
    prompts = encode(policy, ["1:12=", "4:13,24="])
    completions = Completions(torch.tensor([[5, 6, 2], [9, 2, 2], [7, 7, 2], [2, 2, 2]]), torch.tensor([3, 2, 3, 1]), 2)
    engine, bare = make_engine(policy), make_engine(plain, general=True)
    reference = Reference(policy)
    plan = engine.plan(prompts, completions)
    before = engine.logps(plan)
    torch.testing.assert_close(before, bare.logps(plan), atol=1e-6, rtol=0)
    frozen = [p.clone() for p in policy.model.parameters() if not p.requires_grad]
    optimizer = Optimizer(policy.model, learning_rate=1e-2)
    for _ in range(3):
        optimizer.zero()
        engine.logps(plan).sum().backward()
        optimizer.step(learning_rate=1e-2, max_norm=1.0)
    after = engine.logps(plan).detach()
    assert (after - before).abs().max() > 1e-3
    assert all(map(torch.equal, frozen, [p for p in policy.model.parameters() if not p.requires_grad]))
    torch.testing.assert_close(reference.logps(plan), bare.logps(plan), atol=1e-6, rtol=0)
    reference.take(policy.learned)
    torch.testing.assert_close(reference.logps(plan), after, atol=1e-6, rtol=0)
    optimizer.step(learning_rate=1e-2, max_norm=1.0)
    torch.testing.assert_close(reference.logps(plan), after, atol=1e-6, rtol=0)
    assert not torch.allclose(engine.logps(plan), after)


def test_a_run_with_an_adapter(tmp_path):
    config = RunConfig(lora_rank=8, steps=3, learning_rate=1e-2, beta=0.1, refresh_every=2, **FAST)
    events = list(train(config))
    steps = [event for event in events if event["event"] == "step"]
    assert events[-1]["state"] == "finished"
    assert steps[0]["kl"] == pytest.approx(0.0, abs=1e-9)
    assert steps[1]["kl"] > 1e-6
    assert steps[2]["kl"] == pytest.approx(0.0, abs=1e-9)  # refreshed after step 2


@pytest.mark.parametrize(("rank", "dtype"), [(4, "float32"), (4, "bfloat16"), (0, "bfloat16")])
def test_a_run_of_ones_own_model_goes_on_from_its_checkpoint_bit_by_bit(llama_folder, tmp_path, rank, dtype):
    config = RunConfig(
        model=str(llama_folder), lora_rank=rank, dtype=dtype, task="shell_game_length_bonus", learning_rate=1e-2,
        steps=6, beta=0.1, refresh_every=2, checkpoint_every=3, prompts_per_step=2, **{**FAST, "eval_prompts": 2},
    )  # fmt: skip
    straight = timeless(train(config, checkpoints=Checkpoints(tmp_path / "straight")))
    kept = Checkpoints(tmp_path / "cut")
    first = list(itertools.takewhile(lambda event: event["step"] < 5, train(config, checkpoints=kept)))
    begin = kept.newest()
    assert begin.step == 3
    _, *rest = timeless(train(RunConfig(), checkpoints=kept, begin=begin))
    assert timeless(first)[: begin.events] + rest == straight
    assert straight[-1]["state"] == "finished"
