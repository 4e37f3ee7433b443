"""What the first page says: the current group on its way from prompt to loss."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np

from app import lens as lenses
from app.figures.base import Palette
from app.lens import Lens
from app.numbers import plain, short, signed
from app.widgets import Question, Table
from app.words import prose, t
from grpo_core import masked_mean

SHOWN = 8
STAGES = ("completions", "rewards", "advantages", "ratio", "kl", "reduction", "loss")
PAGES = {"rewards": "advantages", "advantages": "advantages", "ratio": "clip", "kl": "kl", "reduction": "reduction"}


def pipeline(lens: Lens, colors: Palette) -> dict[str, Any]:
    """Return what the picture of the pipeline draws."""
    rows = [_row(lens, i) for i in range(min(lens.group.size, SHOWN))]
    hidden = lens.group.size - len(rows)
    return {
        "prompt": lens.group.prompt,
        "answer": lens.group.answer,
        "stages": [_stage(name, lens) for name in STAGES],
        "rows": rows,
        "more": t("home.more", n=hidden) if hidden else "",
        "scale": _scale(lens, rows),
        "total": _total(lens),
        "words": {name: t(f"home.{name}") for name in ("prompt", "answer", "empty")},
        "colors": asdict(colors),
    }


def _stage(name: str, lens: Lens) -> dict[str, Any]:
    formula = t(f"stage.{name}.formula")
    if name == "advantages" and (lens.spec.estimator != "group" or lens.spec.scale == "none"):
        formula = t(f"stage.advantages.{'loo' if lens.spec.estimator != 'group' else 'centred'}")
    if name == "kl":
        formula = t("stage.kl.off") if lens.objective.beta == 0 else t("stage.kl.on", beta=short(lens.objective.beta))
    if name == "reduction":
        formula = t(f"param.reduce.{lens.objective.aggregation}")
    title = t(f"stage.{name}", n=lens.group.size)
    return {"id": name, "title": title, "formula": formula, "page": PAGES.get(name), "hint": t("stage.open")}


def _row(lens: Lens, i: int) -> dict[str, Any]:
    """Return one completion's numbers at every step."""
    group, terms = lens.group, lens.terms
    trains = lens.row(terms.mask, i)
    ratio, saturated = lens.row(terms.ratio, i)[trains], lens.row(terms.saturated, i)[trains]
    kl = lens.row(terms.kl, i) if terms.kl is not None else np.zeros(0)
    share = float(lens.row(terms.contribution, i).sum())
    drawn = float(np.nan_to_num(share))  # JSON knows no infinite number
    reward = group.rewards[i]
    return {
        "tokens": list(group.tokens[i]), "trains": trains.tolist(), "note": _length(lens, i),
        "reward": reward, "reward_text": t("control.unscored") if reward is None else short(reward),
        "advantage": float(lens.advantages[i]), "advantage_text": signed(lens.advantages[i]),
        "ratios": ratio.tolist(), "saturated": saturated.tolist(), "ratio_text": _ratios(ratio, saturated),
        "kl": np.where(np.isfinite(kl), kl, 0.0).tolist(),
        "kl_text": plain(float(masked_mean(kl, trains)), 2) if kl.size else "",
        "weights": lens.row(terms.weights, i).tolist(), "share": drawn, "share_text": signed(share),
    }  # fmt: skip


def _length(lens: Lens, i: int) -> str:
    key = "home.truncated" if lens.group.truncated[i] else "home.tokens"
    return t(key, n=len(lens.group.tokens[i])) if lens.group.tokens[i] else ""


def _ratios(ratio: np.ndarray, saturated: np.ndarray) -> str:
    if not ratio.size:
        return t("home.empty")
    return t("home.ratios", low=plain(ratio.min(), 2), high=plain(ratio.max(), 2), clipped=int(saturated.sum()))


def _scale(lens: Lens, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what full size means in each column, so that rows can be compared."""

    def largest(name: str) -> float:
        values = [abs(v) for row in rows for v in np.atleast_1d(row[name]).tolist()]
        return max(values, default=0.0)

    low, high = 1 - lens.values["eps_low"], 1 + lens.values["eps_high"]
    ratios = [r for row in rows for r in row["ratios"]]
    end = min(max([1.6, 1.2 * high, *ratios, *(1 / r for r in ratios)]), 20.0)
    return {
        "advantage": largest("advantage"), "share": largest("share"), "kl": largest("kl"), "weight": largest("weights"),
        "tokens": max(len(row["tokens"]) for row in rows),
        "ratio": {"low": low, "high": min(high, end), "from": 1 / end, "to": end},
    }  # fmt: skip


def _total(lens: Lens) -> list[dict[str, Any]]:
    terms, beta = lens.terms, lens.objective.beta
    policy = {"label": t("home.policy"), "text": signed(float(terms.policy_loss))}
    result = {"label": t("home.loss"), "text": signed(float(terms.loss)), "result": True}
    if beta == 0:
        return [policy, result]
    return [policy, {"label": t("home.kl", beta=short(beta)), "text": plain(float(terms.kl_loss), 4)}, result]


def notice(lens: Lens) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    kind = lens.group.kind
    if kind != "mixed":
        return ("no-signal-kl" if lens.objective.beta else "no-signal"), {"kind": t(f"kind.{kind}")}
    saturated = int(lens.terms.saturated.sum())
    numbers = {"clipped": str(saturated), "tokens": str(sum(lens.lengths)), "loss": signed(float(lens.terms.loss))}
    ratio = lens.terms.ratio[lens.terms.mask]
    if ratio.size and np.all(ratio == 1.0):
        return "on-policy", numbers
    return "mixed", numbers


def question(lens: Lens) -> Question:
    """Ask what the loss is when the first completion's reward is raised for all alike."""
    equal = lens.group.replace(rewards=(1.0,) * lens.group.size, reward_parts={})
    loss = lenses.look(equal, {**lens.values, "beta": 0.0}).terms.loss
    return Question(prose("home", "ask"), float(loss), prose("home", "worked"))


def table(lens: Lens) -> Table:
    """Return every token with everything that is known about it."""
    terms, data = lens.terms, []
    for i, tokens in enumerate(lens.group.tokens):
        reward, share = lens.group.rewards[i], terms.contribution
        for k, token in enumerate(tokens):
            kl = "" if terms.kl is None else float(terms.kl[i, k])
            own = (
                float(terms.ratio[i, k]),
                bool(terms.saturated[i, k]),
                kl,
                float(terms.weights[i, k]),
                float(share[i, k]),
            )
            data.append((i + 1, k + 1, token, "" if reward is None else reward, float(lens.advantages[i]), *own))
    header = (
        "completion",
        "position",
        "token",
        "reward",
        "advantage",
        "ratio",
        "saturated",
        "kl",
        "weight",
        "share of the loss",
    )
    return Table(header, data)


def group_json(lens: Lens) -> str:
    """Return the group as JSON text."""
    return json.dumps(lens.group.to_json(), ensure_ascii=False, indent=1)
