r"""Formulas as LaTeX: symbols, then the current numbers, then the result. Numbers only; a reader's text never enters."""

from __future__ import annotations

from app.lens import Lens
from app.numbers import bracketed, latex, short


def _small(value: float) -> str:
    """Return a hyperparameter for LaTeX: 0.2, or a power of ten where that is shorter."""
    if value and abs(value) < 1e-3:
        mantissa, exponent = f"{value:.3g}".split("e") if "e" in f"{value:.3g}" else (f"{value:.3g}", "")
        head = "" if mantissa == "1" else mantissa + r"\cdot "
        return rf"{head}10^{{{int(exponent)}}}" if exponent else mantissa
    return short(value).replace("\N{MINUS SIGN}", "-")


def advantage(lens: Lens, index: int) -> list[str]:
    """Return the advantage of one completion, in aligned lines."""
    scores, spec = lens.scores, lens.spec
    i, reward = index + 1, lens.group.rewards[index]
    mean, std, value = float(scores.mean), float(scores.std), float(scores.advantages[index])
    if lens.group.kind != "mixed":
        return [r"\max_j r_j &= \min_j r_j \quad\Longrightarrow\quad A_i = 0 \text{ exactly}"]
    result = latex(value, sign=True)
    if spec.estimator == "leave_one_out":
        others = float(reward or 0.0) - value
        return [
            rf"A_{{{i}}} &= r_{{{i}}} - \frac{{1}}{{G-1}}\sum_{{j\neq {i}}} r_j"
            rf" = {latex(reward)} - {bracketed(others)} = {result}"
        ]
    if spec.scale == "none":
        return [rf"A_{{{i}}} &= r_{{{i}}} - \bar r = {latex(reward)} - {bracketed(mean)} = {result}"]
    under = latex(std) + (f" + {_small(spec.eps)}" if spec.eps else "")
    symbol = r"s + \varepsilon" if spec.eps else "s"
    return [
        rf"A_{{{i}}} &= \frac{{r_{{{i}}} - \bar r}}{{{symbol}}}"
        rf" = \frac{{{latex(reward)} - {bracketed(mean)}}}{{{under}}} = {result}",
        std_line(lens),
    ]


def std_line(lens: Lens) -> str:
    """Return the std of the group's scored rewards."""
    count, ddof = int(lens.scores.valid_count), lens.spec.ddof
    under = f"{count} - 1" if ddof else f"{count}"
    symbol = r"G - 1" if ddof else r"G"
    return (
        rf"s &= \sqrt{{\frac{{1}}{{{symbol}}}\sum_i (r_i - \bar r)^2}}"
        rf" = \sqrt{{\frac{{1}}{{{under}}}\sum_i (r_i - {bracketed(float(lens.scores.mean))})^2}}"
        rf" = {latex(float(lens.scores.std))}"
    )


def binary(q: float, success: float, failure: float) -> list[str]:
    """Return the advantages of a success and of a failure at success rate q."""
    return [
        rf"A_+ &= \sqrt{{\tfrac{{1-q}}{{q}}}} = \sqrt{{\tfrac{{{latex(1 - q, 2)}}}{{{latex(q, 2)}}}}}"
        rf" = {latex(success, sign=True)}",
        rf"A_- &= -\sqrt{{\tfrac{{q}}{{1-q}}}} = -\sqrt{{\tfrac{{{latex(q, 2)}}}{{{latex(1 - q, 2)}}}}}"
        rf" = {latex(failure, sign=True)}",
    ]


def mixed(p: float, size: int, value: float) -> list[str]:
    """Return the probability of a mixed group."""
    return [
        rf"\Pr(\text{{mixed}}) &= 1 - p^G - (1-p)^G"
        rf" = 1 - {latex(p, 2)}^{{{size}}} - {latex(1 - p, 2)}^{{{size}}} = {latex(value)}"
    ]

