r"""Formulas as LaTeX: symbols, then the current numbers, then the result. Numbers only, never a reader's text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app import lens as lenses
from app import walk
from app.lens import Distributions, Lens, Parts
from app.numbers import bracketed, latex, short
from grpo_core import AdvantageSpec


def _small(value: float) -> str:
    """Return a hyperparameter for LaTeX: 0.2, or a power of ten where that is shorter."""
    if value and abs(value) < 1e-3:
        mantissa, exponent = f"{value:.3g}".split("e") if "e" in f"{value:.3g}" else (f"{value:.3g}", "")
        head = "" if mantissa == "1" else mantissa + r"\cdot "
        return rf"{head}10^{{{int(exponent)}}}" if exponent else mantissa
    return short(value).replace("\N{MINUS SIGN}", "-")


def plain_spec(spec: AdvantageSpec) -> bool:
    """Return whether an advantage is the group's, or RLOO's, and nothing is done to it afterwards."""
    own = spec.whitening is None and spec.reward_aggregation == "sum_then_normalize"
    return own and spec.estimator in ("group", "leave_one_out")


def advantage(lens: Lens, index: int) -> list[str]:
    """Return the advantage of one completion, in aligned lines."""
    scores, spec = lens.scores, lens.spec
    if not plain_spec(spec):
        return [walk.advantage_line(lens, index)]
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
    letter = "G" if count == lens.group.size else "n"  # n: the completions that could be scored
    symbol = f"{letter} - 1" if ddof else letter
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


def clip(probe: Any, clip_range: Mapping[str, Any]) -> list[str]:
    """Return the clipped surrogate at the probe."""
    low, high, delta = 1 - clip_range["epsilon_low"], 1 + clip_range["epsilon_high"], clip_range["delta"]
    r, a = latex(probe.ratio, 2), bracketed(probe.advantage)
    unclipped_symbol = r"r A" if delta is None else r"\min(r, \delta)\,A"
    unclipped = rf"{r} \cdot {a}" if delta is None else rf"\min({r}, {_small(delta)}) \cdot {a}"
    return [
        rf"J &= \min\!\big({unclipped_symbol},\; \mathrm{{clip}}(r,\, 1-\varepsilon_{{\mathrm{{low}}}},\,"
        rf" 1+\varepsilon_{{\mathrm{{high}}}})\,A\big)",
        rf"&= \min\!\big({unclipped},\; \mathrm{{clip}}({r},\, {_small(low)},\, {_small(high)}) \cdot {a}\big)",
        rf"&= {latex(probe.objective, sign=True)}",
    ]


def levels(token: float, tokens: int, ratios: Mapping[str, float]) -> list[str]:
    """Return the three ratios of a completion whose tokens all have the same ratio."""
    capped = lenses.is_capped(ratios["trajectory"])
    product = latex(ratios["trajectory"], 2)
    relation = (r"\geq" if token > 1 else r"\leq") if capped else "="
    return [
        rf"\text{{sequence}} &= \Big(\prod_t r_t\Big)^{{1/|o|}} = \big({_small(token)}^{{{tokens}}}\big)^{{1/{tokens}}}"
        rf" = {latex(ratios['sequence'])}",
        rf"\text{{trajectory}} &= \prod_t r_t = {_small(token)}^{{{tokens}}} {relation} {product}",
    ]


def graph(slopes: Mapping[str, float]) -> list[str]:
    """Return the slope at ratio 1 with a frozen and with a shared old policy."""
    value = latex(slopes["value"], sign=True)
    return [
        r"\text{frozen:}\quad \frac{\partial}{\partial \log\pi}\; e^{\log\pi - \log\pi_{\mathrm{old}}} A"
        rf" &= r A = 1 \cdot {bracketed(slopes['value'])} = {latex(slopes['frozen'], sign=True)}",
        r"\text{shared:}\quad \frac{\partial}{\partial \log\pi}\; e^{\log\pi - \log\pi} A"
        rf" &= \frac{{\partial}}{{\partial \log\pi}}\,({value}) = {latex(slopes['shared'])}",
    ]


def kl(d: float, values: Mapping[str, float]) -> list[str]:
    """Return the three estimators at one log-ratio."""
    x = latex(d, 2)
    inside = bracketed(d, 2)
    return [
        rf"d &= \log\pi_{{\mathrm{{ref}}}} - \log\pi = {x}",
        rf"k_1 &= -d = {latex(values['k1'], sign=True)}",
        rf"k_2 &= \tfrac12 d^2 = \tfrac12 \cdot {inside}^2 = {latex(values['k2'])}",
        rf"k_3 &= e^{{d}} - 1 - d = e^{{{x}}} - 1 - {inside} = {latex(values['k3'])}",
    ]


_TERMS = {
    "k1": r"\log\tfrac{p_x}{q_x}",
    "k2": r"\tfrac12 \log^2\tfrac{q_x}{p_x}",
    "k3": r"\big(\tfrac{q_x}{p_x} - 1 - \log\tfrac{q_x}{p_x}\big)",
}


def expectation(both: Distributions, name: str) -> list[str]:
    """Return the exact divergence and an estimator's expectation under the current policy."""
    index = name[1]
    return [
        rf"\mathrm{{KL}}(p\,\|\,q) &= \sum_x p_x \log\tfrac{{p_x}}{{q_x}} = {latex(both.exact, 4)}",
        rf"\mathbb{{E}}_p[k_{index}] &= \sum_x p_x {_TERMS[name]}",
        rf"&= {_terms(both, name)} = {latex(both.expected[name], 4)}",
    ]


def _terms(both: Distributions, name: str) -> str:
    """Return the sum with the numbers of up to three events put in."""
    parts = [rf"{latex(p, 2)}\cdot {bracketed(v, 3)}" for p, v in zip(both.current, both.estimates[name], strict=True)]
    return " + ".join(parts if len(parts) <= 2 else [parts[0], r"\dots", parts[-1]])


_WEIGHTS = {
    "sequence_mean": r"\frac{1}{B\,|o_i|}",
    "token_mean": r"\frac{1}{\sum_j |o_j|}",
    "constant": r"\frac{1}{B\,C}",
    "sequence_sum": r"\frac{1}{B}",
    "token_sum": r"1",
}


def reduction(lens: Lens, extremes: tuple[int, int], constant: float) -> list[str]:
    """Return the weight of a token of the completions with the heaviest and the lightest tokens, and the loss."""
    mode = lens.objective.aggregation
    lines = []
    for i in dict.fromkeys(extremes):
        size, length, total = lens.group.size, lens.lengths[i], sum(lens.lengths)
        numbers = {
            "sequence_mean": rf"\frac{{1}}{{{size} \cdot {length}}}",
            "token_mean": rf"\frac{{1}}{{{total}}}",
            "constant": rf"\frac{{1}}{{{size} \cdot {_small(constant)}}}",
            "sequence_sum": rf"\frac{{1}}{{{size}}}",
            "token_sum": "1",
        }[mode]
        if length:
            weight = float(lens.terms.weights[i].max())
            lines.append(rf"w_{{{i + 1},t}} &= {_WEIGHTS[mode]} = {numbers} = {latex(weight, 4)}")
    return [*lines, rf"L &= \sum_{{i,t}} w_{{i,t}}\, \ell_{{i,t}} = {latex(float(lens.terms.loss), sign=True)}"]


def parts(split: Parts) -> list[str]:
    """Return the mean of the micro-batches' means and the token mean of the whole batch."""
    local = [latex(v, 3) for v in split.local]
    shown = local if len(local) <= 4 else [local[0], r"\dots", local[-1]]
    means = " + ".join(f"({v})" if v.startswith("-") else v for v in shown)
    weighted = [rf"{n} \cdot {bracketed(v)}" for n, v in zip(split.tokens, split.local, strict=True)]
    pooled = " + ".join(weighted if len(weighted) <= 3 else [weighted[0], r"\dots", weighted[-1]])
    return [
        rf"\text{{mean of means}} &= \frac{{{means}}}{{{len(local)}}} = {latex(split.mean_of_means, sign=True)}",
        rf"\text{{true token mean}} &= \frac{{{pooled}}}{{{sum(split.tokens)}}} = {latex(split.pooled, sign=True)}",
    ]


def loss(lens: Lens) -> list[str]:
    """Return the loss: its definition, its two parts, the result."""
    terms, beta = lens.terms, lens.objective.beta
    result = latex(float(terms.loss), sign=True)
    if beta == 0:
        return [rf"L &= -\sum_{{i,t}} w_{{i,t}}\, J_{{i,t}} = {result}"]
    policy = latex(float(terms.policy_loss))
    return [
        r"L &= \sum_{i,t} w_{i,t}\,\big(-J_{i,t} + \beta\, \mathrm{KL}_{i,t}\big)"
        rf" = {policy} + {_small(beta)} \cdot {latex(float(terms.kl_loss), 4)} = {result}"
    ]
