"""Make the start weights of the shell game: a small GPT-2 (or Llama) that has the skill but seldom uses it.

    python -m grpo_core.live.warm_start --seed 1
    python -m grpo_core.live.warm_start --seed 1 --width 128 --half --out grpo_core/live/assets/shell_game_wide
    python -m grpo_core.live.warm_start --family llama --width 256 --layers 4 --out FOLDER   # 3.2 million parameters

Two supervised phases, half a minute to two minutes on one CPU core: first mostly completions that think, until
following the ball is learned; then the mixture of styles the reinforcement run starts from. Held-out prompts never
occur. The Llama takes some fifteen times as long and is not shipped; whether these steps teach it the skill has not
been measured (the benchmark times it with random weights).
"""

import argparse
import json
import math
import random
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from grpo_core.live.engines import Completions, Engine, Prompts, make_engine
from grpo_core.live.model import ASSETS, FAMILIES, Policy, new_policy, save_policy
from grpo_core.live.rollout import encode, sample
from grpo_core.live.tasks import Problem, Task, exact
from grpo_core.live.update import Optimizer

STYLES = ("bare", "direct", "think")
LEARN, MIX = (0.05, 0.05, 0.90), (0.50, 0.42, 0.08)
SWAPS = (3, 4, 5, 6)
BATCH = 64


def styled(problem: Problem, style: str) -> str:
    """Write a problem's answer in one of the three styles."""
    tagged = f"<answer>{problem.answer}</answer>"
    return {"bare": problem.answer, "direct": tagged, "think": f"<think>{problem.steps}</think>{tagged}"}[style]


def batch(policy: Policy, rng: random.Random, mix: Sequence[float]) -> tuple[Prompts, Completions]:
    """Draw training problems with answers in a mixture of styles."""
    problems = [Task("any", rng.choice(SWAPS), "exact").sample(rng, 1)[0] for _ in range(BATCH)]
    styles = rng.choices(STYLES, mix, k=BATCH)
    texts = [styled(problem, style) for problem, style in zip(problems, styles, strict=True)]
    eos = policy.tokenizer.eos_token_id
    rows = [[*row, eos] for row in policy.tokenizer(texts, add_special_tokens=False)["input_ids"]]
    longest = max(map(len, rows))
    tokens = torch.tensor([row + [eos] * (longest - len(row)) for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    return encode(policy, [problem.prompt for problem in problems]), Completions(tokens, lengths, 1)


def teach(policy: Policy, engine: Engine, rng: random.Random, *, steps: int, mix: Sequence[float], peak: float) -> None:
    """Train on the completions' tokens for some steps, with a short warm-up and a cosine learning rate."""
    optimizer = Optimizer(policy.model, learning_rate=peak)
    for step in range(steps):
        prompts, completions = batch(policy, rng, mix)
        loss = -engine.logps(engine.plan(prompts, completions)).sum() / completions.lengths.sum()
        optimizer.zero()
        loss.backward()
        rate = peak * 0.5 * (1 + math.cos(math.pi * step / steps)) * min(1.0, (step + 1) / 20)
        optimizer.step(learning_rate=rate, max_norm=1.0)
        if (step + 1) % 100 == 0:
            print(json.dumps({"step": step + 1, "loss": round(loss.item(), 4)}), flush=True)


def measure(policy: Policy, engine: Engine, *, swaps: int, count: int = 300) -> dict[str, float]:
    """Measure on held-out prompts: free sampling, and greedy accuracy when a style's opening is given."""
    problems = Task("any", swaps, "exact").held_out(count)
    found = {}
    for name, opening, greedy in (("sampled", "", False), ("direct", "<answer>", True), ("think", "<think>", True)):
        rollout = sample(
            engine,
            encode(policy, [problem.prompt + opening for problem in problems]),
            group_size=1,
            max_new_tokens=14 + swaps,
            eos=policy.tokenizer.eos_token_id,
            generator=torch.Generator().manual_seed(0),
            greedy=torch.full((count,), greedy),
        )
        texts = [opening + text for text in policy.texts(rollout.completions.tokens.tolist())]
        scores = [exact(text, problem.answer) for text, problem in zip(texts, problems, strict=True)]
        found[name] = round(sum(score.reward or 0.0 for score in scores) / count, 3)
        if not greedy:
            found["sampled_format"] = round(sum(score.format for score in scores) / count, 3)
            found["sampled_thinking"] = round(sum("<think>" in text for text in texts) / count, 3)
    return found


def main() -> None:
    """Make, measure and save the start weights."""
    parser = argparse.ArgumentParser(prog="python -m grpo_core.live.warm_start", description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--learn", type=int, default=1400, help="steps of the first phase")
    parser.add_argument("--mix", type=int, default=150, help="steps of the second phase")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--family", choices=FAMILIES, default=FAMILIES[0])
    parser.add_argument("--half", action="store_true", help="keep the weights in float16: half the size")
    parser.add_argument("--out", type=Path, default=ASSETS / "shell_game", help="folder for the weights")
    options = parser.parse_args()
    torch.set_num_threads(1)
    policy = new_policy(seed=options.seed, width=options.width, layers=options.layers, family=options.family)
    engine, rng, began = make_engine(policy), random.Random(options.seed), time.perf_counter()
    teach(policy, engine, rng, steps=options.learn, mix=LEARN, peak=3e-3)
    teach(policy, engine, rng, steps=options.mix, mix=MIX, peak=5e-4)
    print(json.dumps({"seconds": round(time.perf_counter() - began, 1), "parameters": policy.parameters}))
    for swaps in SWAPS:
        print(json.dumps({"swaps": swaps, **measure(policy, engine, swaps=swaps)}), flush=True)
    save_policy(policy, options.out, half=options.half)


if __name__ == "__main__":
    main()
