"""Models from elsewhere: loading them without running their code, LoRA adapters, a check that they fit our engines."""

import warnings
from typing import Any

import torch
from torch import Tensor

from grpo_core.live.config import RunConfig
from grpo_core.live.estimates import estimate, known_model, work_of
from grpo_core.live.machine import host_memory
from grpo_core.live.memory import out_of_memory
from grpo_core.live.model import Policy, prompt_text
from grpo_core.live.sources import Source, find_source
from grpo_core.live.tasks import Task
from grpo_core.messages import InputError, Message

_FOLDER = Message(
    "give a folder that transformers has saved, with config.json, model.safetensors and the tokenizer's files"
)


def load_pretrained(source: Source, dtype: torch.dtype) -> tuple[Any, Any]:
    """Load model and tokenizer; ValueError with a remedy for whatever stands in the way."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": not source.hub}
    if source.gguf:
        needs("gguf", Message("the weights in {file}", file=source.gguf))
        options["gguf_file"] = source.gguf
    try:
        tokenizer = AutoTokenizer.from_pretrained(source.place, **options)
    except Exception as error:
        raise InputError(
            "the model {name!r} has no tokenizer that can be read ({error}): {remedy}",
            name=source.name,
            error=_said(error),
            remedy=_FOLDER,
        ) from None
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source.place, dtype=dtype, output_loading_info=True, **options
        )
    except Exception as error:
        if out_of_memory(error):
            raise InputError(
                "the model {name!r} does not fit into memory: choose a smaller one", name=source.name
            ) from None
        raise InputError(
            "the model {name!r} cannot be loaded ({error}): {remedy}",
            name=source.name,
            error=_said(error),
            remedy=_FOLDER,
        ) from None
    model, told = loaded
    if told["missing_keys"]:
        raise InputError(
            "the weights of {name!r} are not those of the model that its config.json describes ({count} are missing, "
            "{first!r} first): save it anew",
            name=source.name,
            count=len(told["missing_keys"]),
            first=min(told["missing_keys"]),
        )
    _prepare(model, tokenizer, source)
    return model, tokenizer


def _prepare(model: Any, tokenizer: Any, source: Source) -> None:
    """Make sure of what sampling needs, and forget the packing of a GGUF file, which is undone by now."""
    if source.gguf:
        model.hf_quantizer = None
        model.config.__dict__.pop("quantization_config", None)
    elif getattr(model, "hf_quantizer", None) is not None:
        raise InputError(
            "the weights of {name!r} are quantized and cannot be trained: choose the full model", name=source.name
        )
    if tokenizer.eos_token_id is None:
        raise InputError(
            "the tokenizer of {name!r} has no end-of-text token: set eos_token in its files", name=source.name
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    _check_template(tokenizer, source)
    rows = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > rows:
        raise InputError(
            "tokenizer and weights of {name!r} do not belong together ({tokens} tokens, {rows} "
            "embeddings): save them anew",
            name=source.name,
            tokens=len(tokenizer),
            rows=rows,
        )


def _check_template(tokenizer: Any, source: Source) -> None:
    """Try the chat template, which is a program of the model's own."""
    try:
        prompt_text(tokenizer, "1 + 1 =")
    except Exception as error:
        raise InputError(
            "the chat template of {name!r} cannot be used ({error}): mend or remove it in the tokenizer's files",
            name=source.name,
            error=_said(error),
        ) from None


def needs(package: str, purpose: str) -> None:
    """Say what to install where an optional package is missing (ValueError)."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise InputError(
            "{purpose} need the package {package}: pip install {package}", purpose=purpose, package=package
        )


def _said(error: Exception) -> str:
    """The first sentence of what a library said."""
    return f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0][:200]}"


def add_lora(policy: Policy, rank: int) -> Policy:
    """Put a LoRA adapter on every matrix but the output's and freeze the rest; ValueError where peft is missing.

    Weight update (alpha / rank) B A with alpha = 2 rank; B starts at 0, so that the policy starts as the model is. The
    adapter is float32 whatever the model is. Source: LoRA arXiv:2106.09685 sec. 4.1; peft's "all-linear" targets.
    """
    needs("peft", Message("LoRA adapters"))
    from peft import LoraConfig, get_peft_model
    from transformers.pytorch_utils import Conv1D

    turned = any(isinstance(module, Conv1D) for module in policy.model.modules())
    config = LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM",
        fan_in_fan_out=turned,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft 0.21 asks for names that transformers 5.24 will drop
        torch.manual_seed(0)
        model: Any = get_peft_model(policy.model, config)
    return Policy(model.eval(), policy.tokenizer, policy.device)


@torch.no_grad()
def check_engine(policy: Policy, engine: Any) -> None:
    """Compare the engine's log-probabilities with a plain forward pass on two short rows; ValueError where they differ.

    So a model whose cache or positions work otherwise is refused at the start, not trained on wrong numbers.
    """
    from grpo_core.live.engines import Completions
    from grpo_core.live.rollout import encode

    prompts = encode(policy, ["1 + 1 =", "one and two"])
    tokens = prompts.ids[:, -2:].repeat_interleave(2, 0).contiguous()
    tokens[1::2] = policy.tokenizer.eos_token_id
    completions = Completions(tokens, torch.full((4,), 2, device=tokens.device), 2)
    try:
        shared = engine.logps(engine.plan(prompts, completions))
        plain = _plain(policy, prompts, tokens)
    except Exception as error:
        raise InputError(
            "this kind of model cannot be sampled here ({error}): choose another one", error=_said(error)
        ) from None
    tolerance = 1e-3 if shared.dtype == policy.model.dtype else 0.3
    if not torch.allclose(shared, plain, atol=tolerance, rtol=0.05):
        far = float((shared - plain).abs().max())
        raise InputError(
            "this kind of model gives other numbers with a cache than without ({far:.2g} nats): choose another", far=far
        )


def _plain(policy: Policy, prompts: Any, tokens: Tensor) -> Tensor:
    """Log-probabilities (4, 2) of tokens by one uncached forward pass a row."""
    rows = []
    for i, own in enumerate(tokens):
        real = prompts.ids[i // 2] if prompts.mask is None else prompts.ids[i // 2][prompts.mask[i // 2]]
        logits = policy.model(input_ids=torch.cat([real, own])[None]).logits[0].float()
        rows.append(logits.log_softmax(-1)[-3:-1].gather(1, own[:, None]).squeeze(1))
    return torch.stack(rows)


def check_start(policy: Policy, engine: Any, task: Task, config: RunConfig) -> None:
    """Make sure that a run can begin: the engine fits a model from elsewhere, and prompts and completions have room."""
    if config.model and not find_source(config.model).built_in:
        check_engine(policy, engine)
    longest = max(map(len, policy.encode([policy.prompt_text(problem.prompt) for problem in task.longest(20)])))
    limit = policy.context
    if limit is not None and longest + config.max_new_tokens > limit:
        raise InputError(
            "the longest prompt has {longest} tokens and {max_new_tokens} new ones are asked for, "
            "but the model has room for {limit}: lower max_new_tokens, shorten the prompts or "
            "choose another model",
            longest=longest,
            max_new_tokens=config.max_new_tokens,
            limit=limit,
        )


def check_memory(config: RunConfig, start: str, device: torch.device) -> None:
    """Refuse a model whose weights, gradients and optimizer state alone are more than what is free."""
    try:
        known = known_model(config.model or start)
    except ValueError:
        return  # loading says what is wrong, or fetches it
    half = {"auto": device.type == "cuda", "bfloat16": True}.get(config.dtype, False)
    parts = estimate(
        known.shape, work_of(config, prompt_tokens=1, half=half), speed=None, room=1, parameters=known.parameters
    ).parts
    needed = sum(parts[name] for name in ("weights", "gradients", "optimizer", "reference"))
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else host_memory()[1]
    if free is not None and needed > free:
        raise InputError(
            "the model {name!r} needs {needed:.1f} GB to be trained in this way, and {free:.1f} GB "
            "are free: train an adapter (lora_rank), take bfloat16 (dtype), or a smaller model",
            name=config.model or start,
            needed=needed / 1e9,
            free=free / 1e9,
        )
