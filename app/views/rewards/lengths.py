"""The soft punishment of overlong completions against their length."""

from __future__ import annotations

from typing import Any

import numpy as np

from app import widgets
from app.bench import Bench
from app.figures import rewards as figures
from app.lens import Lens
from app.numbers import latex, plain, signed
from app.views.rewards import scores as scoring
from app.views.rewards import texts
from app.widgets import Question, Readout, Table, slider
from app.words import prose, t
from grpo_core.rewards import overlong_penalty


def lengths(bench: Bench) -> np.ndarray:
    """Return each completion's length in tokens."""
    return np.array([float(len(texts.split(text))) for text in bench.texts])


def settings(lens: Lens) -> None:
    """Draw the controls."""
    cache = {**slider("long_cache"), "high": max(2, int(lens.values["long_max"]))}
    widgets.controls("lengths", [slider("long_max"), cache])


def draw(lens: Lens, bench: Bench) -> None:
    """Draw the picture and what belongs to it."""
    how, own = scoring.overlong(lens), lengths(bench)
    values = overlong_penalty(own, **how)
    longest = int(np.argmax(own))
    figure = figures.overlong(widgets.colors(), *curve(lens, own), points=(own, values), **how)
    widgets.picture(figure, "overlong", alt=t("alt.overlong"))
    widgets.readouts(
        [
            Readout("longest", t("readout.tokens", n=int(own[longest]))),
            Readout("penalty", signed(values[longest])),
            Readout("starts", t("readout.tokens", n=how["max_length"] - how["cache"])),
            Readout("punished", t("readout.of", n=int(np.sum(values < 0)), total=len(own))),
        ]
    )
    widgets.formula(formula(how, float(own[longest]), float(values[longest])))
    section, numbers = notice(how, own, values)
    widgets.notice("rewards", section, **numbers)
    widgets.check_yourself("overlong", question)
    widgets.take_away("rewards", "overlong", lambda: snippet(how, own), lambda: table(lens, own))


def curve(lens: Lens, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return lengths and the penalty there, kinks included."""
    how = scoring.overlong(lens)
    end = max(1.25 * how["max_length"], 1.08 * float(own.max(initial=0.0)))
    kinks = [how["max_length"] - how["cache"], how["max_length"], how["max_length"] + 1e-6]
    x = np.unique(np.concatenate([np.linspace(0, end, 61), kinks]))
    return x, np.asarray(overlong_penalty(x, **how))


def formula(how: dict[str, Any], length: float, value: float) -> list[str]:
    """Return the longest completion's penalty with numbers."""
    limit, cache = how["max_length"], how["cache"]
    n = int(length)
    if n > limit:
        return [rf"n = {n} > {limit} \quad&\Longrightarrow\quad R = -1"]
    if n <= limit - cache:
        return [rf"n = {n} \le {limit} - {cache} = {limit - cache} \quad&\Longrightarrow\quad R = 0"]
    return [
        r"R &= \frac{(L_{\max} - L_{\mathrm{cache}}) - n}{L_{\mathrm{cache}}}"
        rf" = \frac{{({limit} - {cache}) - {n}}}{{{cache}}} = {latex(value)}"
    ]


def notice(how: dict[str, Any], own: np.ndarray, values: np.ndarray) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    numbers = {
        "start": str(how["max_length"] - how["cache"]), "limit": str(how["max_length"]), "cache": str(how["cache"]),
        "worst": plain(float(values.min()), 2),
    }  # fmt: skip
    if how["cache"] == 0:
        return "overlong-step", numbers
    return ("overlong" if np.any(values < 0) else "overlong-free"), numbers


def question() -> Question:
    """Ask for a penalty with DAPO's own numbers."""
    value = float(overlong_penalty(18000.0, max_length=20480, cache=4096))
    worked = prose("rewards", "worked-overlong", answer=plain(value))
    return Question(prose("rewards", "ask-overlong"), value, worked, tolerance=0.005)


def snippet(how: dict[str, Any], own: np.ndarray) -> str:
    """Return Python for the penalties."""
    return f"""from grpo_core.rewards import overlong_penalty

lengths = {own.tolist()}  # tokens
print(overlong_penalty(lengths, max_length={how["max_length"]}, cache={how["cache"]}))"""


def table(lens: Lens, own: np.ndarray) -> Table:
    """Return the curve as data."""
    return Table(("tokens", "penalty"), [tuple(map(float, row)) for row in zip(*curve(lens, own), strict=True)])
