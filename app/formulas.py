r"""Formulas as LaTeX: symbols, then the current numbers, then the result. Numbers only, never a reader's text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from app import lens as lenses
from app import walk
from app.lens import Distributions, Lens, Parts
from app.numbers import bracketed, latex, short
from grpo_core import AdvantageSpec, GroupAdvantages, as_rewards, group_advantages, sum_rewards
from grpo_core.baselines import whitening_moments


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
        return _other(lens, index)
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


def _other(lens: Lens, index: int) -> list[str]:
    """Return the advantage where a recipe brings another baseline, or does something to the result."""
    spec = lens.spec
    if lens.group.rewards[index] is None:
        return [walk.advantage_line(lens, index)]
    if spec.reward_aggregation == "normalize_then_sum":
        return _parts_first(lens, index)
    if spec.whitening is None:
        return _BASELINES[spec.estimator](lens, index)
    plain = without_whitening(lens)
    before = [line.replace("A_{", "A'_{", 1) for line in advantage(plain, index)]
    scored = ~np.isnan(lens.group.reward_array)
    moments = whitening_moments(plain.advantages, np.asarray(lens.lengths), scored, whitening=spec.whitening)
    return [*before, *whitened(index, float(plain.advantages[index]), moments, float(lens.advantages[index]))]


def without_whitening(lens: Lens) -> Lens:
    """Return the lens before its advantages are centred and scaled over the batch's tokens."""
    spec = replace(lens.spec, whitening=None)
    scores = lens.group.advantages(spec, greedy_reward=float(lens.values["greedy"]))
    return replace(lens, spec=spec, scores=scores)


def whitened(index: int, before: float, moments: tuple[Any, Any], value: float) -> list[str]:
    """Return how one advantage is centred and scaled over the batch's tokens."""
    mean, divisor, i = float(moments[0]), float(moments[1]), index + 1
    return [
        rf"A_{{{i}}} &= \frac{{A'_{{{i}}} - \mathrm{{mean}}_{{\mathrm{{tokens}}}}(A')}}"
        rf"{{\mathrm{{std}}_{{\mathrm{{tokens}}}}(A')}}"
        rf" = \frac{{{latex(before)} - {bracketed(mean)}}}{{{latex(divisor)}}} = {latex(value, sign=True)}"
    ]


def _listed(values: Sequence[str], most: int = 4) -> str:
    """Return a sum with its terms written out, as far as there is room."""
    return " + ".join(values if len(values) <= most else [values[0], r"\dots", values[-1]])


def _one_line(lens: Lens, index: int) -> list[str]:
    return [walk.advantage_line(lens, index)]


def _reward(lens: Lens, index: int) -> list[str]:
    return [rf"A_{{{index + 1}}} &= r_{{{index + 1}}} = {latex(float(lens.advantages[index]), sign=True)}"]


def _batch_mean(lens: Lens, index: int) -> list[str]:
    scored = [bracketed(r, 2) for r in lens.group.rewards if r is not None]
    mean = latex(float(lens.scores.mean))
    line = rf"\bar r &= \frac{{1}}{{n}}\sum_j r_j = \frac{{{_listed(scored)}}}{{{len(scored)}}} = {mean}"
    return [line, walk.advantage_line(lens, index)]


def _length_weighted(lens: Lens, index: int) -> list[str]:
    pairs = [(n, r) for n, r in zip(lens.lengths, lens.group.rewards, strict=True) if r is not None]
    over, under = _listed([rf"{n}\cdot {bracketed(r, 2)}" for n, r in pairs], 3), _listed([str(n) for n, _ in pairs])
    reward, value, i = float(lens.group.rewards[index] or 0.0), float(lens.advantages[index]), index + 1
    base = bracketed(reward - value)
    return [
        rf"b &= \frac{{\sum_j |o_j|\, r_j}}{{\sum_j |o_j|}} = \frac{{{over}}}{{{under}}} = {latex(reward - value)}",
        rf"A_{{{i}}} &= r_{{{i}}} - b = {latex(reward)} - {base} = {latex(value, sign=True)}",
    ]


def _best_alone(lens: Lens, index: int) -> list[str]:
    if float(lens.advantages[index]) == 0.0:
        return [rf"A_{{{index + 1}}} &= 0 \quad\text{{not the only best}}"]
    return [walk.advantage_line(lens, index), std_line(lens)]


_BASELINES: Mapping[str, Callable[[Lens, int], list[str]]] = {
    "reward": _reward,
    "batch_mean": _batch_mean,
    "length_weighted": _length_weighted,
    "greedy_baseline": _one_line,
    "nonzero_scaled": _batch_mean,
    "best_of_group": _best_alone,
}
"""The lines of every baseline but the group's mean and RLOO's."""


def _parts_first(lens: Lens, index: int) -> list[str]:
    """Return the advantage where each reward function is normalised before the sum, and the sum once more."""
    parts = [as_rewards(list(part)) for part in lens.group.reward_parts.values()] or [lens.group.reward_array]
    spec, n = lens.spec, index + 1
    each = [group_advantages(part, ddof=spec.ddof, eps=spec.eps) for part in parts]
    lines = [
        normalised(rf"z_{{{n},{f + 1}}}", rf"r_{{{n},{f + 1}}}", float(part[index]), one, spec.eps, index)
        for f, (part, one) in enumerate(zip(parts, each, strict=True))
        if not np.isnan(part[index])
    ]
    z = np.stack([one.advantages for one in each], axis=-1)
    total = np.where(np.isnan(lens.group.reward_array), np.nan, np.asarray(sum_rewards(z)))
    terms = _listed([bracketed(value) for value in z[index]], 3)
    summed = rf"A'_{{{n}}} &= \sum_f z_{{{n},f}} = {terms} = {latex(float(total[index]), sign=True)}"
    if spec.whitening is None:
        again = group_advantages(total, ddof=spec.ddof, eps=spec.eps)
        last = [normalised(rf"A_{{{n}}}", rf"A'_{{{n}}}", float(total[index]), again, spec.eps, index)]
    else:
        scored = ~np.isnan(total)
        moments = whitening_moments(np.nan_to_num(total), np.asarray(lens.lengths), scored, whitening=spec.whitening)
        last = whitened(index, float(total[index]), moments, float(lens.advantages[index]))
    return [*lines[:3], summed, *last]


def normalised(left: str, symbol: str, reward: float | None, scores: GroupAdvantages, eps: float, index: int) -> str:
    """Return (reward - mean) / (std + eps) with its numbers; `scores` are the advantages that it is one of.

    `symbol`: the reward's, such as r_{2,1}; its letter with a bar is the mean's.
    """
    if float(scores.std) == 0.0:
        return rf"{left} &= 0 \quad\text{{(all equal)}}"
    under = latex(float(scores.std)) + (f" + {_small(eps)}" if eps else "")
    divisor = r"s + \varepsilon" if eps else "s"
    return (
        rf"{left} &= \frac{{{symbol} - \bar {symbol.split('_')[0]}}}{{{divisor}}}"
        rf" = \frac{{{latex(reward)} - {bracketed(float(scores.mean))}}}{{{under}}}"
        rf" = {latex(float(scores.advantages[index]), sign=True)}"
    )


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


def mixed(p: float, size: int, value: float, unscored: float = 0.0) -> list[str]:
    """Return the probability of a mixed group; `unscored` is the share u of completions without a score."""
    if unscored:
        u, own, other = latex(unscored, 2), latex(p, 2), latex(1 - p, 2)
        inside = rf"({u} + {latex(1 - unscored, 2)} \cdot "
        return [
            r"\Pr(\text{mixed}) &= 1 - \big(u + (1-u)\,p\big)^G - \big(u + (1-u)(1-p)\big)^G + u^G",
            rf"&= 1 - {inside}{own})^{{{size}}} - {inside}{other})^{{{size}}} + {u}^{{{size}}}",
            rf"&= {latex(value)}",
        ]
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
    inside = f"({x})" if "^" in x or d < 0 else x  # a power of ten cannot be squared as it stands
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
        size, length, total = lens.group.size, lens.trained[i], sum(lens.trained)
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


def parts(split: Parts, span: str = "part") -> list[str]:
    """Return a token's weight and the loss under a span, and the token mean of the whole batch."""
    weighted = [rf"{n} \cdot {bracketed(v)}" for n, v in zip(split.tokens, split.local, strict=True)]
    total = sum(split.tokens)
    pooled = rf"\frac{{{_listed(weighted, 2)}}}{{{total}}} = {latex(split.pooled, sign=True)}"
    lines = [rf"\text{{true token mean}} &= {pooled}"]
    if span == "all":
        return [*lines, rf"w &= \frac{{1}}{{\sum_j |o_j|}} = \frac{{1}}{{{total}}} = {latex(1 / max(total, 1), 4)}"]
    full = [k for k, n in enumerate(split.tokens) if n] or [0]
    k = max(full, key=lambda part: split.weights[span][part])
    count = len(split.members) if span == "part" else split.ranks
    rank = k // split.each
    counted = split.tokens[k] if span == "part" else sum(split.tokens[rank * split.each : (rank + 1) * split.each])
    symbol = r"\frac{1}{P\, N_{\mathrm{part}}}" if span == "part" else r"\frac{1}{R\, N_{\mathrm{rank}}}"
    weight = latex(split.weights[span][k], 4)
    heaviest = rf"w &= {symbol} = \frac{{1}}{{{count} \cdot {max(counted, 1)}}} = {weight} \quad\text{{(heaviest)}}"
    if span == "rank":
        return [rf"\text{{mean of ranks}} &= {latex(split.losses['rank'], sign=True)}", *lines, heaviest]
    means = _listed([bracketed(v) for v in split.local])
    result = latex(split.mean_of_means, sign=True)
    return [rf"\text{{mean of means}} &= \frac{{{means}}}{{{len(split.local)}}} = {result}", *lines, heaviest]


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
