"""Any surrogate against the ratio: its curve, the group's tokens on it, and its formula with the numbers put in."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from app import lens as lenses
from app import params, walk
from app.explain import clip
from app.figures.clip import Points
from app.lens import Lens
from app.numbers import bracketed, latex
from app.recipe_words import recipe_title
from app.words import t
from grpo_core import Objective, get_recipe
from grpo_core.ratios import ratio_from_log
from grpo_core.surrogate_curves import ORDINARY, SurrogateCurve, surrogate_curve

LEAST = 0.02  # the picture begins at this ratio: log 0 is not a number
WIDEST = 10.0
MOST_CURVES = 4
READS_LOGP = ("policy_gradient", "cispo", "vespo", "dppo_tv", "dppo_kl", "dro")
STOPPED = ("cispo", "vespo", "dppo_tv", "dppo_kl")  # their weight is a constant for the gradient
THROUGH_RATIO = ("clip", "unclipped", "sapo", "kl_cov", "clip_cov")
LEVELLED = (*THROUGH_RATIO, "cispo", "dppo_tv", "dppo_kl")  # read the ratio at the objective's level


@dataclass(frozen=True)
class Probe:
    """One surrogate at the slider: the token's numbers there."""

    ratio: float
    advantage: float
    old_logp: float
    objective: float
    gradient: float
    value_slope: float
    saturated: bool


@dataclass(frozen=True)
class Drawn:
    """One surrogate in the picture. `branch`: what it does with the tokens that it singles out, if it does."""

    title: str
    objective: Objective
    curve: SurrogateCurve
    branch: SurrogateCurve | None
    at: Probe

    @property
    def parted(self) -> bool:
        """Whether the slope of the value is not what the trainer follows: a part of it counts as a constant."""
        return self.objective.surrogate in STOPPED


def advantage(lens: Lens) -> float:
    """Return the group's largest advantage of the chosen sign."""
    return clip.strongest(lens, up=lens.values["sign"] == "up")


def first(lens: Lens, high: float) -> Drawn:
    """Return the surrogate of the current settings."""
    return drawn(lens, t(f"param.surrogate.{lens.objective.surrogate}"), lens.objective, high)


def second(lens: Lens, high: float) -> Drawn | None:
    """Return the surrogate that it is compared with, if there is one."""
    name = lens.values["second"]
    return None if name == "off" else drawn(lens, recipe_title(name), get_recipe(name).objective, high)


def drawn(lens: Lens, title: str, objective: Objective, high: float) -> Drawn:
    """Return a surrogate's curve for the probe's advantage."""
    ratio, a, old = grid(objective, high), advantage(lens), math.log(lens.values["oldp"])
    own = ratio, np.full_like(ratio, a), np.full_like(ratio, old)
    branch = surrogate_curve(*own, objective, singled_out=True) if objective.surrogate in ORDINARY else None
    return Drawn(title, objective, surrogate_curve(*own, objective), branch, probe(lens, objective))


def probe(lens: Lens, objective: Objective) -> Probe:
    """Return a surrogate at the slider's ratio (at least LEAST)."""
    ratio, a, old = max(float(lens.values["r"]), LEAST), advantage(lens), math.log(lens.values["oldp"])
    at = surrogate_curve(np.array([ratio]), np.array([a]), np.array([old]), objective)
    numbers = (float(x[0]) for x in (at.objective, at.gradient, at.value_slope))
    return Probe(ratio, a, old, *numbers, bool(at.saturated[0]))


def grid(objective: Objective, high: float) -> np.ndarray:
    """Return ratios from LEAST to `high`, with the corners of the surrogate exactly among them."""
    p = objective.surrogate_parameters()
    corners = [1 - p.get("epsilon_low", 0.0), 1 + p.get("epsilon_high", 0.0), p.get("delta") or 1.0]
    corners += [p.get(name, 1.0) for name in ("weight_low", "weight_high", "weight_cap")]
    corners += [math.exp(-p.get("log_epsilon_low", 0.0)), math.exp(p.get("log_epsilon_high", 0.0))]
    inside = [c + side for c in corners for side in (-1e-9, 0.0, 1e-9) if LEAST < c + side < high]
    return np.unique(np.concatenate([np.linspace(LEAST, high, 121), inside]))


def others(lens: Lens, high: float) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    """Return the grid, and (objective, gradient) for the group's other advantages of the chosen sign."""
    a = advantage(lens)
    own = sorted({float(x) for x in lens.advantages if x * a > 0} - {a})[-MOST_CURVES:]
    ratio = grid(lens.objective, high)
    if not own:
        return ratio, []
    n, k = ratio.size, len(own)
    old = np.full(n * k, math.log(lens.values["oldp"]))
    found = surrogate_curve(np.tile(ratio, k), np.repeat(own, n), old, lens.objective)
    rows = zip(found.objective.reshape(k, n), found.gradient.reshape(k, n), strict=True)
    return ratio, list(rows)


def reads(objective: Objective) -> str:
    """Return which ratio a surrogate reads: "token", "sequence", "trajectory", or its own: "gmpo", "vespo"."""
    return objective.ratio_level if objective.surrogate in LEVELLED else objective.surrogate


def ratios(lens: Lens) -> np.ndarray:
    """Return, for every token, the ratio that the surrogate reads, (B, T)."""
    if lens.objective.surrogate in LEVELLED:
        return np.asarray(lens.terms.ratio)
    if lens.objective.surrogate == "vespo":
        return np.where(lens.terms.mask, lenses.levels(lens.group)["trajectory"], 1.0)
    return ratio_from_log(np.asarray(lens.terms.log_ratio), lens.terms.mask)


def points(lens: Lens, high: float) -> Points:
    """Return the group's tokens whose advantage has the chosen sign, each with its own numbers from the loss.

    The gradient is that by the logarithm of the ratio: a token's own derivative, divided by the length where the
    product of all tokens hands it on to each of them.
    """
    a = np.broadcast_to(np.asarray(lens.batch.advantages).reshape(len(lens.batch.mask), -1), lens.batch.mask.shape)
    x, weights = ratios(lens), np.asarray(lens.terms.weights)
    keep = lens.terms.mask & (a * advantage(lens) > 0) & (x <= high) & (weights > 0)
    drive = -np.asarray(lens.gradients.policy)[keep] / weights[keep]
    if lens.objective.ratio_level == "trajectory" and lens.objective.surrogate in THROUGH_RATIO:
        drive = drive / np.broadcast_to(lens.terms.mask.sum(axis=1, keepdims=True), keep.shape)[keep]
    names = [lens.group.tokens[i][k] for i, k in zip(*np.nonzero(keep), strict=True)]
    return Points(x[keep], np.asarray(lens.terms.objective)[keep], drive, a[keep], lens.terms.saturated[keep], names)


def widest(lens: Lens) -> float:
    """Return where the ratio axis ends."""
    seen = ratios(lens)[lens.terms.mask]
    wanted = [2.5, 1.06 * float(lens.values["r"]), *([min(1.06 * float(seen.max()), WIDEST)] if seen.size else [])]
    wanted += [1.15 * (lens.values["delta"] or 0.0)] if lens.objective.surrogate == "clip" else []
    return max(wanted)


# Formula


def lines(lens: Lens, one: Drawn) -> list[str]:
    """Return what is held constant, the value and the gradient's weight: symbols, numbers, result."""
    name, at = one.objective.surrogate, one.at
    chain = _chain(at)
    value = walk.objective_lines(replace(lens, objective=one.objective), chain)[:-1]
    symbols, numbers = _DRIVE[name](one)
    way = rf"{latex(at.gradient)} \quad\text{{(flat)}}" if at.saturated else rf"{symbols} = {numbers}"
    result = "" if at.saturated else rf" = {latex(at.gradient, sign=True)}"
    drive = rf"D &= \frac{{\partial J}}{{\partial\log\pi}} = {way}{result}"
    return [*(_HELD[name](one) if name in _HELD else []), *value, drive]


def _chain(at: Probe) -> walk.Chain:
    """Return the probe as a completion of one token."""
    return walk.Chain(
        completion=0, position=0, reward=None, advantage=at.advantage, logp=at.old_logp + math.log(at.ratio),
        old_logp=at.old_logp, ref_logp=None, log_ratio=math.log(at.ratio), ratio=at.ratio, length=1,
        objective=at.objective, saturated=at.saturated, masked=False, drive=at.gradient, kl=0.0, kl_drive=0.0,
        weight=1.0, contribution=-at.objective, pull=at.gradient,
    )  # fmt: skip


def _factor(one: Drawn) -> float:
    return one.at.gradient / one.at.advantage


def _held(symbols: str, numbers: Callable[[Drawn], str]) -> Callable[[Drawn], list[str]]:
    """Return the line of a weight that the gradient takes as a constant."""

    def held(one: Drawn) -> list[str]:
        return [
            rf"c &= {symbols} \quad\text{{(held constant)}}",
            rf"&= {numbers(one)} = {latex(_factor(one))}",
        ]

    return held


def _parameters(one: Drawn) -> Mapping[str, float]:
    return one.objective.surrogate_parameters()


def _cispo(one: Drawn) -> str:
    p = _parameters(one)
    bounds = rf"{walk.plain(p['weight_low'])},\ {walk.plain(p['weight_high'])}"
    return rf"\mathrm{{clip}}({latex(one.at.ratio)},\ {bounds})"


def _vespo(one: Drawn) -> str:
    p, side = _parameters(one), "positive" if one.at.advantage >= 0 else "negative"
    k, lam, w = walk.plain(p[f"k_{side}"]), walk.plain(p[f"lambda_{side}"]), latex(one.at.ratio)
    return rf"e^{{{lam} + {k} \log {w} - {lam} \cdot {w}}}"


def _dppo(one: Drawn) -> str:
    if one.at.saturated:
        return r"0 \;\text{(too far)}"
    return rf"\min({latex(one.at.ratio)},\ {walk.plain(_parameters(one)['weight_cap'])})"


_HELD: Mapping[str, Callable[[Drawn], list[str]]] = {
    "cispo": _held(r"\mathrm{clip}(r, w_{\mathrm{low}}, w_{\mathrm{high}})", _cispo),
    "vespo": _held(r"e^{\lambda + k \log W - \lambda W}", _vespo),
    "dppo_tv": _held(r"\min(r, c_{\max})\, \mathbf{1}[\text{near}]", _dppo),
    "dppo_kl": _held(r"\min(r, c_{\max})\, \mathbf{1}[\text{near}]", _dppo),
}


def _product(one: Drawn) -> tuple[str, str]:
    return r"A\,r", rf"{bracketed(one.at.advantage)} \cdot {latex(one.at.ratio)}"


def _constant(one: Drawn) -> tuple[str, str]:
    return r"c\,A", rf"{latex(_factor(one))} \cdot {bracketed(one.at.advantage)}"


def _gate(one: Drawn) -> tuple[str, str]:
    """The gate's slope 4 g (1 - g) is what remains of D when A and r are divided out."""
    slope = _factor(one) / one.at.ratio
    return (
        r"4\,\sigma(1 - \sigma)\, A\,r",
        rf"{latex(slope)} \cdot {bracketed(one.at.advantage)} \cdot {latex(one.at.ratio)}",
    )


def _quadratic(one: Drawn) -> tuple[str, str]:
    weight = walk.plain(_parameters(one)["dro_beta"])
    inside = bracketed(math.log(one.at.ratio))
    return r"A - \beta_{\mathrm{dro}} \log r", rf"{latex(one.at.advantage)} - {weight} \cdot {inside}"


_DRIVE: Mapping[str, Callable[[Drawn], tuple[str, str]]] = {
    "clip": _product,
    "policy_gradient": lambda one: ("A", latex(one.at.advantage)),
    "unclipped": _product,
    "cispo": _constant,
    "sapo": _gate,
    "vespo": _constant,
    "gmpo": lambda one: ("J", latex(one.at.objective)),
    "dppo_tv": _constant,
    "dppo_kl": _constant,
    "dro": _quadratic,
    "kl_cov": _product,
    "clip_cov": _product,
}


def options(lens: Lens) -> list[str]:
    """Return the settings that are hyperparameters of the current surrogate."""
    p = lens.objective.surrogate_parameters()
    shared = {"epsilon_low": "eps_low", "epsilon_high": "eps_high", "delta": "delta"}
    return [shared.get(name, name) for name in p if name in shared or name in params.OPTIONS]
