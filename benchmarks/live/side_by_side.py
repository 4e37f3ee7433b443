"""Our step and TRL's GRPOTrainer on the same model, prompts, group size, lengths and loss, step by step in turn."""

import random
import statistics
import tempfile
import time
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from benchmarks.live.arithmetic import share
from grpo_core.live.config import RunConfig
from grpo_core.live.estimates import shape_of
from grpo_core.live.model import ASSETS, new_policy, save_policy
from grpo_core.live.sources import BUILT_IN
from grpo_core.live.tasks import TASKS, Problem, Score, Task, exact
from grpo_core.live.trainer import Run

WARM_UP, COUNTED = 5, 5
ROWS, GROUP, TOKENS, RATE = 64, 8, 14, 1e-4


@dataclass(frozen=True)
class Listed(Task):
    """A task that gives problems from a list, in its order."""

    problems: tuple[Problem, ...] = ()
    given: list[int] = None  # type: ignore[assignment]

    def sample(self, rng, count, *, held_out=False):
        if held_out:
            return super().sample(rng, count, held_out=True)
        start = self.given[0]
        self.given[0] += count
        return list(self.problems[start : start + count])


@dataclass(frozen=True)
class Coin(Listed):
    """The reward of a model with random weights, which never answers: right or wrong by a hash of the text."""

    def scores(self, completions, problems, lengths):
        return [Score(coin(text), coin(text), 0.0) for text in completions]


def coin(text: str) -> float:
    return float(zlib.crc32(text.encode()) % 2)


def listed(problems: list[Problem], *, model: str) -> Listed:
    base, kind = TASKS["shell_game"], Coin if model == "llama" else Listed
    return kind(base.name, base.swaps, base.verifier, base.start, tuple(problems), [0])


@contextmanager
def start_of(model: str) -> Iterator[str]:
    """The folder of the weights: shipped with the program, or those of a Llama with random weights, made here."""
    if model in BUILT_IN:
        yield str(ASSETS / model)
        return
    with tempfile.TemporaryDirectory() as folder:
        save_policy(new_policy(seed=0, width=256, layers=4, family="llama"), Path(folder))
        yield folder


def report(*, beta: float, steps: int, threads: int, model: str = "shell_game") -> None:
    """Run both for some steps and print the medians and their ratios."""
    with start_of(model) as start:
        _report(start, model, beta=beta, steps=steps, threads=threads)


def _report(start: str, model: str, *, beta: float, steps: int, threads: int) -> None:
    problems = TASKS["shell_game"].sample(random.Random(0), (steps + COUNTED) * ROWS // GROUP)
    config = RunConfig(
        beta=beta, learning_rate=RATE, steps=steps, max_new_tokens=TOKENS, pace=None, eval_prompts=1,
        model=model if model in BUILT_IN else start,
    )  # fmt: skip
    ours = {
        "ours, every measurement (the default run)": Run(config, task=listed(problems, model=model)),
        "ours, without the probe": Run(replace(config, probe=False), task=listed(problems, model=model)),
    }
    torch.set_num_threads(threads)
    times, last = alternate(ours, problems, start=start, model=model, beta=beta, steps=steps)
    parameters = next(iter(ours.values())).policy.parameters
    print(
        f"\nOne step of {model} ({parameters:,} parameters), beta {beta:g}: medians of {steps - WARM_UP} steps in turn,"
    )
    print(f"{threads} thread(s)")
    print(f"  {'':48s}{'seconds':>9s}{'TRL / ours':>12s}{'CPU seconds':>13s}{'TRL / ours':>12s}")
    theirs = medians(times["TRL"])
    for name, pairs in times.items():
        wall, cpu = medians(pairs)
        print(f"  {name:48s}{wall:9.4f}{theirs[0] / wall:12.2f}{cpu:13.4f}{theirs[1] / cpu:12.2f}")
    print(f"  last 10 steps, mean reward and length: {last}")
    for name, run in ours.items():
        seconds, bare = share(run, shape_of(run.policy.model.config.to_dict()), steps=COUNTED)
        print(
            f"  {name}: {COUNTED} more steps, median {seconds:.4f} s; their products with the weights, timed bare, "
            f"take {bare:.4f} s: {bare / seconds:.0%} of the step",
            flush=True,
        )


def medians(pairs: list[tuple[float, float]]) -> tuple[float, ...]:
    return tuple(statistics.median(values) for values in zip(*pairs, strict=True))


def clocks() -> tuple[float, float]:
    """Seconds of the clock, and CPU seconds of this process, which a busy machine disturbs less."""
    return time.perf_counter(), time.process_time()


def since(start: tuple[float, float]) -> tuple[float, float]:
    wall, cpu = clocks()
    return wall - start[0], cpu - start[1]


def alternate(ours, problems, *, start, model, beta, steps):
    """Let TRL train; after each of its steps take one of ours. Seconds of every step after the warm-up."""
    from transformers import TrainerCallback

    times: dict[str, list[tuple[float, float]]] = {"TRL": [], **{name: [] for name in ours}}
    began, seen = [clocks()], []

    class Turns(TrainerCallback):
        def on_step_begin(self, args, state, control, **_):
            began[0] = clocks()

        def on_step_end(self, args, state, control, **_):
            times["TRL"].append(since(began[0]))
            for name, run in ours.items():
                before = clocks()
                event = run.step_event()
                times[name].append(since(before))
            seen.append((event["reward"], event["completions/mean_length"]))

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = trl_trainer(folder, problems, start=start, model=model, beta=beta, steps=steps, callback=Turns())
        trainer.train()
    logs = [entry for entry in trainer.state.log_history if "reward" in entry][-10:]
    last = {
        "TRL": (mean(entry["reward"] for entry in logs), mean(entry["completions/mean_length"] for entry in logs)),
        "ours": (mean(reward for reward, _ in seen[-10:]), mean(length for _, length in seen[-10:])),
    }
    return {name: pairs[WARM_UP:] for name, pairs in times.items()}, last


def mean(values) -> float:
    return round(statistics.fmean(values), 2)


def trl_trainer(folder, problems, *, start, model, beta, steps, callback):
    """TRL's trainer with our run's settings: Dr. GRPO without std scaling, constant rate, one update a batch."""
    import transformers
    from datasets import Dataset
    from datasets.utils import disable_progress_bars
    from trl import GRPOConfig, GRPOTrainer

    disable_progress_bars()
    transformers.logging.set_verbosity_error()

    def reward(completions, answer, **_):
        if model == "llama":
            return [coin(text) for text in completions]
        return [exact(text, gold).reward for text, gold in zip(completions, answer, strict=True)]

    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(start)
    rows = [{"prompt": "<bos>" + problem.prompt, "answer": problem.answer} for problem in problems]
    arguments = GRPOConfig(
        output_dir=folder, use_cpu=not torch.cuda.is_available(), bf16=False, gradient_checkpointing=False,
        report_to="none", save_strategy="no", disable_tqdm=True, logging_steps=1, log_level="error",
        per_device_train_batch_size=ROWS, gradient_accumulation_steps=1, num_generations=GROUP,
        max_completion_length=TOKENS, max_steps=steps, shuffle_dataset=False, disable_dropout=True,
        learning_rate=RATE, lr_scheduler_type="constant", adam_beta2=0.99, weight_decay=0.0, max_grad_norm=1.0,
        loss_type="dr_grpo", scale_rewards="none", beta=beta,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=start, reward_funcs=[reward], args=arguments, train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer, callbacks=[callback],
    )  # fmt: skip
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer
