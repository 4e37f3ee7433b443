"""Time and peak memory of loss_terms against the same loss written by hand in torch: `python -m benchmarks.core`.

Both run forward and backward on the same tensors, alternately in one process; the table prints the ratio of medians of
seconds and the ratio of peak bytes that torch allocates. Aim: at most 1.15 in time and 1.25 in memory at the two
larger sizes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from grpo_core import GroupBatch, Objective, loss_terms
from grpo_core.live.logprobs import token_logps

SIZES = ((64, 16), (512, 512), (64, 4096))
CASES = {"clip, beta 0": Objective(), "clip + k3, beta 0.04": Objective(beta=0.04)}


def make_batch(rows: int, tokens: int, *, seed: int = 0) -> GroupBatch:
    """Return a ragged float32 batch whose current log-probabilities require grad."""
    generator = torch.Generator().manual_seed(seed)
    old = -torch.rand(rows, tokens, generator=generator) * 3
    noise = torch.randn(2, rows, tokens, generator=generator) * 0.1
    lengths = torch.randint(tokens // 2, tokens + 1, (rows, 1), generator=generator)
    return GroupBatch(
        logp=(old + noise[0]).requires_grad_(),
        old_logp=old,
        ref_logp=old + noise[1],
        mask=torch.arange(tokens)[None, :] < lengths,
        advantages=torch.randn(rows, generator=generator),
    )


def by_hand(batch: GroupBatch, objective: Objective) -> torch.Tensor:
    """Return the sequence-mean clipped loss as a trainer would write it for this one case."""
    mask = batch.mask.to(batch.logp.dtype)
    advantages = batch.advantages[:, None]
    ratio = torch.exp(batch.logp - batch.old_logp)
    clipped = torch.clamp(ratio, 1 - objective.epsilon_low, 1 + objective.epsilon_high)
    per_token = -torch.min(ratio * advantages, clipped * advantages)
    if objective.beta:
        d = batch.ref_logp - batch.logp
        per_token = per_token + objective.beta * (torch.exp(d) - d - 1)
    return ((per_token * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()


def ours(batch: GroupBatch, objective: Objective) -> torch.Tensor:
    """Return the same loss through the core."""
    return loss_terms(batch, objective).loss


def step(loss: Callable[[GroupBatch, Objective], torch.Tensor], batch: GroupBatch, objective: Objective) -> float:
    """Run forward and backward once; return the seconds it took."""
    batch.logp.grad = None
    start = time.perf_counter()
    loss(batch, objective).backward()
    return time.perf_counter() - start


def peak_bytes(loss: Callable[[GroupBatch, Objective], torch.Tensor], batch: GroupBatch, objective: Objective) -> int:
    """Return the most bytes that torch held at once during forward and backward, beyond the inputs."""
    batch.logp.grad = None
    return peak_of(lambda: loss(batch, objective))


def peak_of(loss: Callable[[], torch.Tensor]) -> int:
    """Return the most bytes that torch held at once during forward and backward of `loss`."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        loss().backward()
    held = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def measure(rows: int, tokens: int, objective: Objective, repeats: int) -> tuple[float, float, float]:
    """Return (our milliseconds, time ratio, memory ratio) at one size."""
    batch = make_batch(rows, tokens)
    torch.testing.assert_close(ours(batch, objective), by_hand(batch, objective), rtol=1e-5, atol=1e-6)
    times: dict[Callable, list[float]] = {ours: [], by_hand: []}
    for _ in range(repeats + 3):
        for loss, seconds in times.items():
            seconds.append(step(loss, batch, objective))
    mine, hand = (statistics.median(seconds[3:]) for seconds in times.values())
    memory = peak_bytes(ours, batch, objective) / peak_bytes(by_hand, batch, objective)
    return 1e3 * mine, mine / hand, memory


def measure_logprobs(rows: int, tokens: int, vocabulary: int) -> tuple[float, float]:
    """Return (time ratio, memory ratio) of log-probabilities from bfloat16 logits, forward and backward."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, tokens, vocabulary, generator=generator).bfloat16().requires_grad_()
    taken = torch.randint(0, vocabulary, (rows, tokens), generator=generator)
    forms: tuple[Callable[[], torch.Tensor], ...] = (
        lambda: token_logps(logits, taken).sum(),
        lambda: logits.float().log_softmax(-1).gather(-1, taken.unsqueeze(-1)).sum(),
    )
    seconds: list[list[float]] = [[], []]
    for _ in range(4):
        for form, times in zip(forms, seconds, strict=True):
            logits.grad = None
            start = time.perf_counter()
            form().backward()
            times.append(time.perf_counter() - start)
    logits.grad = None
    peaks = [peak_of(form) for form in forms]
    return statistics.median(seconds[0][1:]) / statistics.median(seconds[1][1:]), peaks[0] / peaks[1]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=30)
    repeats = parser.parse_args().repeats
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, float32, median of {repeats}")
    print(f"{'loss':22} {'B x T':>12} {'ours ms':>9} {'time ratio':>11} {'memory ratio':>13}")
    for name, objective in CASES.items():
        for rows, tokens in SIZES:
            mine, time_ratio, memory_ratio = measure(rows, tokens, objective, repeats)
            print(f"{name:22} {rows:>5} x {tokens:<4} {mine:9.2f} {time_ratio:11.2f} {memory_ratio:13.2f}")
    time_ratio, memory_ratio = measure_logprobs(8, 128, 32_000)
    print("log-probabilities of tokens from bfloat16 logits (8 x 128 x 32000), against float().log_softmax().gather():")
    print(f"time ratio {time_ratio:.2f}, memory ratio {memory_ratio:.2f}")


if __name__ == "__main__":
    main()
