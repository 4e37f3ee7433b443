"""The share of a step that its arithmetic alone needs: the step's products with the weights, timed bare.

A step's engine calls are written down as they happen: how many rows go through the layers, how many through the output
matrix, and whether they are differentiated. Then the same products run on random numbers, without anything between
them: one for a forward pass, and two more (for the rows' and the weights' gradients) where they are differentiated.
Attention, norms and activations are not in it. No trainer can be faster than this with these products.
"""

import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import torch

from grpo_core.live.estimates import Shape

ROUNDS = 5


@dataclass
class Counted:
    """An engine or a reference that writes its calls down: (rows, rows of the output matrix, differentiated)."""

    engine: Any
    calls: list[tuple[int, int, bool]] = field(default_factory=list)

    def begin(self, prompts, max_new_tokens):
        self.calls.append((prompts.ids.numel(), len(prompts.ids), False))
        return self.engine.begin(prompts, max_new_tokens)

    def advance(self, state, tokens):
        self.calls.append((len(tokens), len(tokens), False))
        return self.engine.advance(state, tokens)

    def logps(self, plan, **settings):
        self.calls.append((*_rows(plan), torch.is_grad_enabled()))
        return self.engine.logps(plan, **settings)

    def __getattr__(self, name):
        return getattr(self.engine, name)


def _rows(plan) -> tuple[int, int]:
    """Rows through the layers and through the output matrix in a pass over prompts and distinct completions."""
    if hasattr(plan, "inputs"):
        return len(plan.inputs), len(plan.last)
    prompts, completions = plan
    continued = len(completions.distinct[0]) * (completions.tokens.shape[1] - 1)
    return prompts.ids.numel() + continued, len(prompts.ids) + continued


def share(run, shape: Shape, *, steps: int = 5) -> tuple[float, float]:
    """Take some steps and give their median seconds, and what their arithmetic alone takes."""
    run.engine, run.reference = Counted(run.engine), Counted(run.reference)
    taken, bare = [], []
    for _ in range(steps):
        for part in (run.engine, run.reference):
            part.calls.clear()
        start = time.perf_counter()
        run.step_event()
        taken.append(time.perf_counter() - start)
        bare.append(_bare(shape, run.engine.calls + run.reference.calls, run.policy.device))
    return statistics.median(taken), statistics.median(bare)


def _bare(shape: Shape, calls, device) -> float:
    """Median seconds of the products of some calls."""
    weights = [torch.randn(a, b, device=device) for _ in range(shape.layers) for a, b in matrices(shape)]
    head = torch.randn(shape.width, shape.vocabulary, device=device)
    inputs = {
        (rows, width): torch.randn(rows, width, device=device)
        for count, last, _ in calls
        for rows in (count, last)
        for width in {shape.width, *(n for weight in (*weights, head) for n in weight.shape)}
    }
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for count, last, trained in calls:
            for weight in weights:
                _product(inputs, weight, count, trained=trained)
            _product(inputs, head, last, trained=trained)
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _product(inputs, weight, rows: int, *, trained: bool) -> None:
    x = inputs[rows, weight.shape[0]]
    torch.mm(x, weight)
    if trained:
        upstream = inputs[rows, weight.shape[1]]
        torch.mm(upstream, weight.t())
        torch.mm(x.t(), upstream)


def matrices(shape: Shape) -> list[tuple[int, int]]:
    """Inputs and outputs of a layer's matrices, queries, keys and values in one where GPT-2 has them in one."""
    if shape.gated:
        return shape.matrices
    (_, heads), (_, keys), (_, values), out, *mlp = shape.matrices
    return [(shape.width, heads + keys + values), out, *mlp]
