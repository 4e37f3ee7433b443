"""Our step and TRL's GRPOTrainer on the same model, prompts, group size, lengths and loss, step by step in turn."""

import random
import statistics
import tempfile
import time
import warnings
from dataclasses import dataclass, replace

import torch

from grpo_core.live.config import RunConfig
from grpo_core.live.model import ASSETS
from grpo_core.live.tasks import TASKS, Problem, Task, exact
from grpo_core.live.trainer import Run

WARM_UP = 5
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


def listed(problems: list[Problem]) -> Listed:
    base = TASKS["shell_game"]
    return Listed(base.name, base.swaps, base.verifier, base.start, tuple(problems), [0])


def report(*, beta: float, steps: int, threads: int) -> None:
    """Run both for some steps and print the medians and their ratios."""
    problems = TASKS["shell_game"].sample(random.Random(0), steps * ROWS // GROUP)
    config = RunConfig(beta=beta, learning_rate=RATE, steps=steps, max_new_tokens=TOKENS, pace=None)
    ours = {
        "ours, every measurement (the default run)": Run(config, task=listed(problems)),
        "ours, without the probe": Run(replace(config, probe=False), task=listed(problems)),
    }
    torch.set_num_threads(threads)
    times, last = alternate(ours, problems, beta=beta, steps=steps)
    print(f"\nOne step, beta {beta:g}: medians of {steps - WARM_UP} steps in turn, {threads} thread(s)")
    print(f"  {'':48s}{'seconds':>9s}{'TRL / ours':>12s}{'CPU seconds':>13s}{'TRL / ours':>12s}")
    theirs = medians(times["TRL"])
    for name, pairs in times.items():
        wall, cpu = medians(pairs)
        print(f"  {name:48s}{wall:9.4f}{theirs[0] / wall:12.2f}{cpu:13.4f}{theirs[1] / cpu:12.2f}")
    print(f"  last 10 steps, mean reward and length: {last}", flush=True)


def medians(pairs: list[tuple[float, float]]) -> tuple[float, ...]:
    return tuple(statistics.median(values) for values in zip(*pairs, strict=True))


def clocks() -> tuple[float, float]:
    """Seconds of the clock, and CPU seconds of this process, which a busy machine disturbs less."""
    return time.perf_counter(), time.process_time()


def since(start: tuple[float, float]) -> tuple[float, float]:
    wall, cpu = clocks()
    return wall - start[0], cpu - start[1]


def alternate(ours, problems, *, beta, steps):
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
                start = clocks()
                event = run.step_event()
                times[name].append(since(start))
            seen.append((event["reward"], event["completions/mean_length"]))

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = trl_trainer(folder, problems, beta=beta, steps=steps, callback=Turns())
        trainer.train()
    logs = [entry for entry in trainer.state.log_history if "reward" in entry][-10:]
    last = {
        "TRL": (mean(entry["reward"] for entry in logs), mean(entry["completions/mean_length"] for entry in logs)),
        "ours": (mean(reward for reward, _ in seen[-10:]), mean(length for _, length in seen[-10:])),
    }
    return {name: pairs[WARM_UP:] for name, pairs in times.items()}, last


def mean(values) -> float:
    return round(statistics.fmean(values), 2)


def trl_trainer(folder, problems, *, beta, steps, callback):
    """TRL's trainer with our run's settings: Dr. GRPO without std scaling, constant rate, one update a batch."""
    import transformers
    from datasets import Dataset
    from datasets.utils import disable_progress_bars
    from trl import GRPOConfig, GRPOTrainer

    disable_progress_bars()
    transformers.logging.set_verbosity_error()

    def reward(completions, answer, **_):
        return [exact(text, gold).reward for text, gold in zip(completions, answer, strict=True)]

    start = str(ASSETS / TASKS["shell_game"].start)
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
