"""What the Reduction page says about the current group."""

from __future__ import annotations

from typing import Any

import numpy as np

from app import lens as lenses
from app.figures.reduction import Row
from app.lens import Lens, Parts
from app.numbers import plain, short, signed
from app.widgets import Question, Table
from app.words import prose, t
from grpo_core import token_weights, weighted_sum

RULES = ("sequence_mean", "token_mean", "constant")


def constant(lens: Lens) -> float:
    """Return the constant in use: what was chosen, or the group's longest completion."""
    return float(lens.objective.constant or lenses.longest(lens.group))


def rows(lens: Lens) -> list[Row]:
    """Return each completion as a strip of weighted tokens."""
    result = []
    for i, tokens in enumerate(lens.group.tokens):
        weights = lens.row(lens.terms.weights, i)
        trains = lens.row(lens.terms.mask, i)
        result.append(Row(str(i + 1), tokens, weights, trains, float(lens.advantages[i])))
    return result


def extremes(lens: Lens) -> tuple[int, int]:
    """Return the completions with the heaviest and the lightest tokens; empty ones do not count."""
    each = [float(np.max(row.weights)) if row.weights.size else 0.0 for row in rows(lens)]
    full = [i for i, weight in enumerate(each) if weight > 0] or [0]
    return max(full, key=lambda i: each[i]), min(full, key=lambda i: each[i])


def heaviest(lens: Lens) -> tuple[float, float]:
    """Return the largest and the smallest weight of a token that trains."""
    top, bottom = extremes(lens)
    both = rows(lens)[top], rows(lens)[bottom]
    return tuple(float(row.weights.max()) if row.weights.size else 0.0 for row in both)  # type: ignore[return-value]


def notice(lens: Lens) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    mode, lengths = lens.objective.aggregation, [n for n in lens.lengths if n]
    if not lengths:
        return "nothing", {}
    if len(lengths) < lens.group.size:
        return "empty", {"empty": str(lens.group.size - len(lengths))}
    large, small = heaviest(lens)
    numbers = {
        "large": plain(large, 4), "small": plain(small, 4), "factor": short(round(large / small, 1)) if small else "–",
        "short": str(min(lengths)), "long": str(max(lengths)), "tokens": str(sum(lengths)),
        "constant": f"{constant(lens):g}", "loss": signed(float(lens.terms.loss)),
    }  # fmt: skip
    if mode == "sequence_mean" and min(lengths) == max(lengths):
        return "equal-lengths", numbers
    return mode, numbers


def question(lens: Lens) -> Question:
    """Ask for the weight of one token of an eight-token completion under the sequence mean."""
    mask = np.arange(8)[None, :] < np.array([[2], [8]])
    weights = token_weights(mask, mode="sequence_mean")
    value = float(weights[1, 0])
    worked = prose("reduction", "worked", answer=plain(value, 4), short=plain(float(weights[0, 0]), 4))
    return Question(prose("reduction", "ask"), value, worked, tolerance=0.001)


def table(lens: Lens) -> Table:
    """Return every token with its weight, its own loss, and its share of the loss."""
    terms, shares, data = lenses.token_terms(lens), lens.terms.contribution, []
    for i, tokens in enumerate(lens.group.tokens):
        for k, token in enumerate(tokens):
            own = (float(values[i, k]) for values in (lens.terms.weights, terms, shares))
            data.append((i + 1, k + 1, token, bool(lens.terms.mask[i, k]), *own))
    return Table(("completion", "position", "token", "trains", "weight", "token loss", "share of the loss"), data)


def rules(lens: Lens) -> tuple[list[str], np.ndarray, list[float], int]:
    """Return the rules' names, each completion's total weight under each, the losses, and which rule is chosen."""
    own = lens.objective.aggregation
    modes = [*RULES, *([own] if own not in RULES else [])]
    weights = [lenses.rule_weights(lens, mode, constant=constant(lens)) for mode in modes]
    totals = np.stack([w.sum(axis=1) for w in weights])
    losses = [float(weighted_sum(lens.terms.per_token, w)) for w in weights]
    return [t(f"param.reduce.{mode}") for mode in modes], totals, losses, modes.index(own)


def rules_table(lens: Lens) -> Table:
    """Return the comparison of the rules as data."""
    names, totals, losses, _ = rules(lens)
    header = ("rule", *(f"total weight of completion {i + 1}" for i in range(lens.group.size)), "loss")
    return Table(header, [(n, *map(float, row), v) for n, row, v in zip(names, totals, losses, strict=True)])


def part_names(parts: Parts) -> list[str]:
    """Return a name for each micro-batch: its completions and its tokens."""
    names = []
    for members, tokens in zip(parts.members, parts.tokens, strict=True):
        first, last = members[0] + 1, members[-1] + 1
        span = str(first) if first == last else f"{first}–{last}"
        key = "chart.part_one" if first == last else "chart.part"
        names.append(t("chart.part_short" if len(parts.members) > 3 else key, members=span, tokens=tokens))
    return names


def parts_notice(parts: Parts, span: str = "part") -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    numbers = {
        "means": signed(parts.mean_of_means), "pooled": signed(parts.pooled), "ranks": signed(parts.losses["rank"]),
        "count": str(parts.ranks), "large": plain(max(parts.weights[span]), 4),
        "small": plain(min((w for w in parts.weights[span] if w > 0), default=0.0), 4),
    }  # fmt: skip
    if span == "all":
        return "parts-all", numbers
    same = abs(parts.losses[span] - parts.pooled) < 1e-9
    if span == "rank":
        return ("parts-rank-same" if same else "parts-rank"), numbers
    return ("parts-same" if same else "parts"), numbers


def parts_question(parts: Parts) -> Question:
    """Ask what a token of the smallest micro-batch weighs."""
    full = [k for k, n in enumerate(parts.tokens) if n] or [0]
    k = min(full, key=lambda part: parts.tokens[part])
    value = parts.weights["part"][k]
    numbers = {
        "tokens": parts.tokens[k], "count": len(parts.members), "answer": plain(value, 4),
        "true": plain(parts.weights["all"][k], 4),
    }  # fmt: skip
    return Question(
        prose("reduction", "ask-parts", **numbers), value, prose("reduction", "worked-parts", **numbers),
        tolerance=0.001,
    )  # fmt: skip


def parts_table(parts: Parts) -> Table:
    """Return the micro-batches as data."""
    rows_ = [
        (k // parts.each + 1, k % parts.each + 1, n, v, *(parts.weights[span][k] for span in ("part", "rank", "all")))
        for k, (n, v) in enumerate(zip(parts.tokens, parts.local, strict=True))
    ]
    weights = ("weight: own tokens", "weight: rank", "weight: whole batch")
    header = ("rank", "micro-batch", "tokens", "token mean", *weights)
    return Table(header, rows_)
