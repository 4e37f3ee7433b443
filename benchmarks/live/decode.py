"""Our decode loops beside transformers' generate: 8 prompts, 8 completions each, 14 tokens, all forced."""

import random
import statistics
import time

import torch

from grpo_core.live.engines import make_engine
from grpo_core.live.model import load_policy
from grpo_core.live.rollout import encode, sample
from grpo_core.live.tasks import TASKS

ROUNDS = 15


def report(*, threads: int) -> None:
    policy = load_policy("shell_game")
    torch.set_num_threads(threads)
    prompts = encode(policy, [problem.prompt for problem in TASKS["shell_game"].sample(random.Random(0), 8)])
    generator = torch.Generator().manual_seed(0)

    def ours(engine):
        sample(engine, prompts, group_size=8, max_new_tokens=14, eos=-1, generator=generator)

    def theirs():
        policy.model.generate(
            prompts.ids, attention_mask=torch.ones_like(prompts.ids), do_sample=True, num_return_sequences=8,
            max_new_tokens=14, min_new_tokens=14, top_k=0,
        )  # fmt: skip

    fast, general = make_engine(policy), make_engine(policy, general=True)
    contenders = {
        "ours, GPT-2 written out": lambda: ours(fast),
        "ours, any model": lambda: ours(general),
        "transformers generate": theirs,
    }
    times = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, contender in contenders.items():
            start = time.perf_counter()
            contender()
            times[name].append(time.perf_counter() - start)
    base = statistics.median(times["transformers generate"])
    print(f"\nSampling 64 rows of 14 tokens: medians of {ROUNDS} in turn, {threads} thread(s)")
    for name, seconds in times.items():
        median = statistics.median(seconds)
        print(f"  {name:50s} {median * 1e3:6.1f} ms   generate / this = {base / median:.2f}")
