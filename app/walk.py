r"""One token's way through the loss as LaTeX: symbols, then its numbers, then the result. Its text never enters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from app.lens import Lens
from app.numbers import bracketed, latex, short

USES_RATIO = ("clip", "unclipped", "cispo", "sapo", "dppo_tv", "dppo_kl", "kl_cov", "clip_cov")
WIDEST = 38  # letters in a row
_OLD, _REF = r"\pi_{\mathrm{old}}", r"\pi_{\mathrm{ref}}"


@dataclass(frozen=True)
class Chain:
    """What the loss makes of one token: every quantity on the way, under one lens.

    `drive` is the derivative of the objective by this token's log-probability (through a shared ratio it counts all
    tokens of the completion), `kl_drive` that of the KL term; `pull` = weight (drive - beta kl_drive).
    """

    completion: int
    position: int
    reward: float | None
    advantage: float
    logp: float
    old_logp: float
    ref_logp: float | None
    log_ratio: float
    ratio: float
    length: int
    objective: float
    saturated: bool
    masked: bool
    drive: float
    kl: float
    kl_drive: float
    weight: float
    contribution: float
    pull: float


def pulls(lens: Lens) -> np.ndarray:
    """Return each token's pull, (B, T): minus the derivative of the loss by its log-probability."""
    return -np.asarray(lens.gradients.total)


def chain(lens: Lens, completion: int, position: int) -> Chain:
    """Return one token's quantities; `completion` and `position` count from 0."""
    terms, at = lens.terms, (completion, position)
    gradients = lens.gradients
    weight, beta = float(terms.weights[at]), float(lens.objective.beta)
    group = lens.group
    return Chain(
        completion=completion,
        position=position,
        reward=group.rewards[completion],
        advantage=_advantage(lens, at),
        logp=group.logp[completion][position],
        old_logp=(group.old_logp or group.logp)[completion][position],
        ref_logp=None if group.ref_logp is None else group.ref_logp[completion][position],
        log_ratio=float(terms.log_ratio[at]),
        ratio=float(terms.ratio[at]),
        length=int(terms.mask[completion].sum()),
        objective=float(terms.objective[at]),
        saturated=bool(terms.saturated[at]),
        masked=not bool(terms.mask[at]),
        drive=_drive(gradients.policy, at, -weight),
        kl=0.0 if terms.kl is None else float(terms.kl[at]),
        kl_drive=_drive(gradients.kl, at, weight * beta),
        weight=weight,
        contribution=float(terms.contribution[at]),
        pull=-float(gradients.total[at]),
    )


def _advantage(lens: Lens, at: tuple[int, int]) -> float:
    advantages = np.asarray(lens.batch.advantages)
    return float(advantages[at[0]] if advantages.ndim == 1 else advantages[at])


def _drive(gradient: np.ndarray, at: tuple[int, int], outer: float) -> float:
    return float(gradient[at]) / outer if outer else 0.0


def lines(lens: Lens, at: Chain) -> list[str]:
    """Return the walk of one token as aligned lines."""
    if at.masked:
        return [r"w &= 0 \quad\Longrightarrow\quad \text{contribution} = \text{pull} = 0"]
    return [
        *(step_lines(lens, at) if np.ndim(lens.batch.advantages) > 1 else [advantage_line(lens, at.completion)]),
        *(ratio_lines(lens, at) if needs_ratio(lens) else []),
        *objective_lines(lens, at),
        *(kl_lines(lens, at) if lens.objective.beta > 0 else []),
        weight_line(lens, at),
        *contribution_lines(lens, at),
        *pull_lines(lens, at),
    ]


def _fold(left: str, symbols: str, numbers: str, result: str) -> list[str]:
    """Return left = symbols = numbers = result as one row, or as two where that would be too wide for the page."""
    whole = rf"{left} &= {symbols} = {numbers} = {result}"
    if _width(whole) <= WIDEST:
        return [whole]
    return [rf"{left} &= {symbols}", rf"&= {numbers} = {result}"]


def _width(text: str) -> int:
    """Return about how many letters wide a formula is."""
    text = re.sub(r"\\frac\{(.*?)\}", r"\1", text)
    return len(re.sub(r"\\[A-Za-z]+|\\[,;! ]|[{}&_^]|\s", "", text.replace(r"\log", "log").replace(r"\min", "min")))


def needs_ratio(lens: Lens) -> bool:
    """Return whether the loss looks at the importance ratio at all."""
    o = lens.objective
    return o.surrogate in USES_RATIO or (o.beta > 0 and o.kl_ratio_weighted)


# Advantage


def both(first: Chain, second: Chain) -> str:
    """Return one token's numbers under two losses side by side, what differs in bold."""
    rows = [
        ("A", first.advantage, second.advantage, 3),
        ("r", first.ratio, second.ratio, 3),
        ("J", first.objective, second.objective, 3),
        (r"D = \partial J / \partial\log\pi", first.drive, second.drive, 3),
        ("w", first.weight, second.weight, 5),
        (r"\text{adds to the loss}", first.contribution, second.contribution, 5),
        (r"\textbf{pull}", first.pull, second.pull, 5),
    ]
    if first.kl_drive or second.kl_drive or first.kl or second.kl:
        rows.insert(4, ("k", first.kl, second.kl, 4))
    body = r"\\[0.2em] ".join(" & ".join((symbol, *_sides(a, b, digits))) for symbol, a, b, digits in rows)
    head = r" & \text{first} & \text{second} \\[0.2em] \hline "
    return rf"\begin{{array}}{{l|rr}} {head} {body} \end{{array}}"


def _sides(first: float, second: float, digits: int) -> tuple[str, str]:
    texts = latex(first, digits, sign=True), latex(second, digits, sign=True)
    if abs(first - second) <= 1e-12 * max(1.0, abs(first)):
        return texts
    return texts[0], rf"\boldsymbol{{{texts[1]}}}"


def advantage_line(lens: Lens, index: int) -> str:
    """Return how one completion's reward becomes its advantage, whatever the estimator."""
    i, reward, value = index + 1, lens.group.rewards[index], float(lens.scores.advantages[index])
    left = rf"A_{{{i}}} &="
    if reward is None:
        return rf"{left} 0 \quad\text{{(completion {i} was not scored)}}"
    if lens.spec.whitening is not None:
        return _whitened(lens, index, left)
    if lens.spec.reward_aggregation == "normalize_then_sum":
        total = r"\mathrm{norm}\Big(\sum_f \frac{r_{i,f} - \bar r_f}{s_f + \varepsilon}\Big)"
        return rf"{left} {total} = {latex(value, sign=True)}"
    symbols, numbers = _ADVANTAGE[lens.spec.estimator](lens, index)
    return rf"{left} {symbols} = {numbers} = {latex(value, sign=True)}"


MOST_TERMS = 6  # step rewards that are written out
ROUNDING = 5e-6  # advantages are recorded with six decimals


def step_lines(lens: Lens, at: Chain) -> list[str]:
    """Return how the rewards of steps become one token's advantage: those of all steps that end at it or later.

    Where a step ends the advantage falls by what that step adds, so its terms are read off the tokens' advantages.
    """
    i, k = at.completion + 1, at.position + 1
    own = np.asarray(lens.batch.advantages)[at.completion, : len(lens.group.tokens[at.completion])]
    falls = (own - np.append(own[1:], 0.0))[at.position :]
    terms = falls[np.abs(falls) > ROUNDING]
    term = r"(r_j - \bar r)" if lens.spec.scale == "none" else r"\frac{r_j - \bar r}{s + \varepsilon}"
    left, symbols = f"A_{{{i},{k}}}", rf"\sum_{{j:\, e_j \ge {k}}} {term}"
    if not 1 < len(terms) <= MOST_TERMS:
        return [rf"{left} &= {symbols} = {latex(at.advantage, sign=True)}"]
    numbers = "".join(latex(value, sign=True) for value in terms).removeprefix("+")
    return _fold(left, symbols, numbers, latex(at.advantage, sign=True))


def _whitened(lens: Lens, index: int, left: str) -> str:
    unwhitened = replace(lens.spec, whitening=None)
    before = lens.group.advantages(unwhitened, greedy_reward=lens.values["greedy"]).advantages[index]
    value = float(lens.scores.advantages[index])
    return (
        rf"{left} \frac{{A' - \mathrm{{mean}}_{{\mathrm{{tokens}}}}(A')}}{{\mathrm{{std}}_{{\mathrm{{tokens}}}}(A')}},"
        rf"\quad A'_{{{index + 1}}} = {latex(float(before), sign=True)}"
        rf"\quad\Longrightarrow\quad {latex(value, sign=True)}"
    )


def _grouped(lens: Lens, index: int) -> tuple[str, str]:
    i, mean, reward = index + 1, float(lens.scores.mean), lens.group.rewards[index]
    over = rf"{latex(reward)} - {bracketed(mean)}"
    if lens.spec.scale == "none":
        return rf"r_{{{i}}} - \bar r", over
    if float(lens.scores.std) == 0.0:  # equal scores: the numerator is exactly 0, whatever divides it
        return rf"\frac{{r_{{{i}}} - \bar r}}{{s}}", rf"{over}"
    eps = lens.spec.eps
    symbol = r"s + \varepsilon" if eps else "s"
    under = latex(float(lens.scores.std)) + (rf" + {plain(eps)}" if eps else "")
    return rf"\frac{{r_{{{i}}} - \bar r}}{{{symbol}}}", rf"\frac{{{over}}}{{{under}}}"


def _baseline(symbol: Callable[[int], str]) -> Callable[[Lens, int], tuple[str, str]]:
    def line(lens: Lens, index: int) -> tuple[str, str]:
        reward = float(lens.group.rewards[index] or 0.0)
        base = reward - float(lens.scores.advantages[index])
        return rf"r_{{{index + 1}}} - {symbol(index + 1)}", rf"{latex(reward)} - {bracketed(base)}"

    return line


def _reward(lens: Lens, index: int) -> tuple[str, str]:
    return rf"r_{{{index + 1}}}", latex(lens.group.rewards[index])


def _scaled(lens: Lens, index: int) -> tuple[str, str]:
    mean, reward = float(lens.scores.mean), lens.group.rewards[index]
    scored = int(lens.scores.valid_count)
    nonzero = max(sum(r not in (None, 0.0) for r in lens.group.rewards), 1)
    return (
        rf"\tfrac{{G}}{{\#(r \neq 0)}} (r_{{{index + 1}}} - \bar r)",
        rf"\tfrac{{{scored}}}{{{nonzero}}} \cdot ({latex(reward)} - {bracketed(mean)})",
    )


def _best(lens: Lens, index: int) -> tuple[str, str]:
    if float(lens.scores.advantages[index]) == 0.0:
        return r"0", r"\text{not the only best}"
    rewards = sorted((r for r in lens.group.rewards if r is not None), reverse=True)
    over = rf"{latex(rewards[0])} - {bracketed(rewards[1])}"
    if lens.spec.scale == "none":
        return r"r_{(1)} - r_{(2)}", over
    under = f"{latex(float(lens.scores.std))} + {plain(lens.spec.eps)}"
    return r"\frac{r_{(1)} - r_{(2)}}{s + \varepsilon}", rf"\frac{{{over}}}{{{under}}}"


_ADVANTAGE: Mapping[str, Callable[[Lens, int], tuple[str, str]]] = {
    "group": _grouped,
    "leave_one_out": _baseline(lambda i: rf"\frac{{1}}{{G-1}}\sum_{{j\neq {i}}} r_j"),
    "reward": _reward,
    "batch_mean": _baseline(lambda i: r"\bar r"),
    "length_weighted": _baseline(lambda i: r"\frac{\sum_j |o_j|\, r_j}{\sum_j |o_j|}"),
    "greedy_baseline": _baseline(lambda i: r"r_{\mathrm{greedy}}"),
    "nonzero_scaled": _scaled,
    "best_of_group": _best,
}


# Ratio and objective


def ratio_lines(lens: Lens, at: Chain) -> list[str]:
    """Return the importance ratio at the objective's level."""
    level = lens.objective.ratio_level
    if level == "token":
        inside = rf"{latex(at.logp)} - {bracketed(at.old_logp)}"
        return _fold("r", rf"e^{{\log\pi - \log{_OLD}}}", rf"e^{{{inside}}}", latex(at.ratio))
    total = float(lens.terms.log_ratio[at.completion].sum())
    summed = rf"\sum_t \log\tfrac{{\pi}}{{{_OLD}}}"
    if level == "sequence":
        symbols = rf"\exp\!\Big(\tfrac{{1}}{{|o|}} {summed}\Big)"
        return _fold("r", symbols, rf"e^{{{bracketed(total)} / {at.length}}}", latex(at.ratio, 4))
    return _fold("r", rf"\exp\!\Big({summed}\Big)", rf"e^{{{latex(total)}}}", latex(at.ratio))


def objective_lines(lens: Lens, at: Chain) -> list[str]:
    """Return the surrogate's value, and its derivative by this token's log-probability."""
    symbols, numbers = _OBJECTIVE[lens.objective.surrogate](lens, at)
    clip = [clip_line(lens, at)] if lens.objective.surrogate in ("clip", "clip_cov") else []
    drive = rf"D &= \frac{{\partial J}}{{\partial\log\pi}} = {_drive_text(lens, at)}{latex(at.drive, sign=True)}"
    return [*clip, *_fold("J", symbols, numbers, latex(at.objective, sign=True)), drive]


def clip_line(lens: Lens, at: Chain) -> str:
    """Return the ratio held inside the clip range."""
    low, high = _range(lens)
    inside = rf"{_ratio(at.ratio)},\ {plain(low)},\ {plain(high)}"
    return rf"c &= \mathrm{{clip}}({inside}) = {_ratio(_held(lens, at))}"


def _range(lens: Lens) -> tuple[float, float]:
    return 1 - lens.objective.epsilon_low, 1 + lens.objective.epsilon_high


def _held(lens: Lens, at: Chain) -> float:
    low, high = _range(lens)
    return min(max(at.ratio, low), high)


def _ratio(value: float) -> str:
    """Return a ratio with as many decimals as a clip range of a few in ten thousand needs."""
    return latex(value, 4)


def _drive_text(lens: Lens, at: Chain) -> str:
    """Return the derivative in numbers where it is a product of two; why it is 0 where it is flat."""
    if at.saturated and at.drive == 0:
        return r"\text{flat, so} \;"
    if lens.objective.surrogate in ("clip", "unclipped", "clip_cov"):
        symbols, factor = _moved(lens, at)
        return rf"{symbols}A\,r = {factor}{bracketed(at.advantage)} \cdot {latex(at.ratio)} = "
    if lens.objective.surrogate == "policy_gradient":
        return r"A = "
    return ""


def _moved(lens: Lens, at: Chain) -> tuple[str, str]:
    """Return how many tokens' J one log-probability moves, as symbols and as a factor: a shared ratio moves all."""
    level, row = lens.objective.ratio_level, at.completion
    moved = int((lens.terms.mask[row] & ~lens.terms.saturated[row]).sum())
    if level == "trajectory" and moved != 1:
        return r"\textstyle\sum_t ", rf"{moved} \cdot "
    if level == "sequence" and moved != at.length:
        return r"\tfrac{1}{|o|} \textstyle\sum_t ", rf"\tfrac{{{moved}}}{{{at.length}}} \cdot "
    return "", ""


def _clip(lens: Lens, at: Chain) -> tuple[str, str]:
    a, r, delta = bracketed(at.advantage), _ratio(at.ratio), lens.objective.delta
    first = "r A" if delta is None else r"\min(r, \delta) A"
    number = rf"{r} \cdot {a}" if delta is None else rf"\min({r}, {plain(delta)}) \cdot {a}"
    return rf"\min({first},\ c A)", rf"\min({number},\ {_ratio(_held(lens, at))} \cdot {a})"


def _product(lens: Lens, at: Chain) -> tuple[str, str]:
    return "r A", rf"{latex(at.ratio)} \cdot {bracketed(at.advantage)}"


def _log(lens: Lens, at: Chain) -> tuple[str, str]:
    return r"A \log\pi", rf"{latex(at.advantage)} \cdot {bracketed(at.logp)}"


def _weighted(symbol: str) -> Callable[[Lens, Chain], tuple[str, str]]:
    """Return the line of a surrogate c A log pi, whose factor c is a constant for the gradient."""

    def line(lens: Lens, at: Chain) -> tuple[str, str]:
        outer = at.advantage * at.logp
        factor = at.objective / outer if outer else 0.0
        return rf"{symbol} A \log\pi", rf"{latex(factor)} \cdot {bracketed(at.advantage)} \cdot {bracketed(at.logp)}"

    return line


def _sapo(lens: Lens, at: Chain) -> tuple[str, str]:
    p = lens.objective.surrogate_parameters()
    tau = plain(p["tau_positive"] if at.advantage > 0 else p["tau_negative"])
    inside = rf"{tau} \cdot ({latex(at.ratio)} - 1)"
    return (
        r"\tfrac{4}{\tau}\, \sigma\big(\tau (r - 1)\big) A",
        rf"\tfrac{{4}}{{{tau}}}\, \sigma\big({inside}\big) \cdot {bracketed(at.advantage)}",
    )


def _gmpo(lens: Lens, at: Chain) -> tuple[str, str]:
    size = at.objective / at.advantage if at.advantage else 1.0
    return (
        r"A \exp\!\Big(\tfrac{1}{|o|}\sum_t c_t\Big)",
        rf"{latex(at.advantage)} \cdot e^{{{latex(float(np.log(abs(size) or 1.0)))}}}",
    )


def _dro(lens: Lens, at: Chain) -> tuple[str, str]:
    half = plain(0.5 * lens.objective.surrogate_parameters()["dro_beta"])
    return (
        r"A \log\pi - \tfrac{\beta_{\mathrm{dro}}}{2} (\log r)^2",
        rf"{latex(at.advantage)} \cdot {bracketed(at.logp)} - {half} \cdot {bracketed(at.log_ratio)}^2",
    )


def _kl_cov(lens: Lens, at: Chain) -> tuple[str, str]:
    penalty = at.ratio * at.advantage - at.objective
    return (
        r"r A - c\,|\log r| \cdot \mathbf{1}[\text{penalised}]",
        rf"{latex(at.ratio)} \cdot {bracketed(at.advantage)} - {latex(abs(penalty))}",
    )


def _clip_cov(lens: Lens, at: Chain) -> tuple[str, str]:
    symbols, numbers = _clip(lens, at)
    if at.objective == 0.0 and at.advantage != 0.0:
        return symbols + r" \cdot \mathbf{1}[\text{not drawn}]", r"0 \;\text{(drawn)}"
    return symbols, numbers


_OBJECTIVE: Mapping[str, Callable[[Lens, Chain], tuple[str, str]]] = {
    "clip": _clip,
    "policy_gradient": _log,
    "unclipped": _product,
    "cispo": _weighted(r"\mathrm{clip}(r)"),
    "sapo": _sapo,
    "vespo": _weighted(r"\varphi(W)\,"),
    "gmpo": _gmpo,
    "dppo_tv": _weighted(r"\min(r, c)\, \mathbf{1}[\text{near}]\,"),
    "dppo_kl": _weighted(r"\min(r, c)\, \mathbf{1}[\text{near}]\,"),
    "dro": _dro,
    "kl_cov": _kl_cov,
    "clip_cov": _clip_cov,
}


# KL, weight, contribution, pull

_KL: Mapping[str, tuple[str, Callable[[str], str]]] = {
    "k1": (r"-d", lambda d: rf"-{d}"),
    "k2": (r"\tfrac12 d^2", lambda d: rf"\tfrac12 \cdot {d}^2"),
    "k3": (r"e^d - 1 - d", lambda d: rf"e^{{{d.strip('()')}}} - 1 - {d}"),
    "abs": (r"|d|", lambda d: rf"|{d}|"),
}


def kl_lines(lens: Lens, at: Chain) -> list[str]:
    """Return the KL estimate of one token."""
    symbol, numbers = _KL[lens.objective.kl_estimator.removesuffix("+")]
    d = (at.ref_logp or 0.0) - at.logp
    shown = numbers(bracketed(d))
    if lens.objective.kl_ratio_weighted:
        symbol, shown = rf"r\,({symbol})", rf"{latex(at.ratio)} \cdot ({shown})"
    inside = rf"{latex(at.ref_logp)} - {bracketed(at.logp)}"
    return [
        *_fold("d", rf"\log{_REF} - \log\pi", inside, latex(d, sign=True)),
        *_fold("k", symbol, shown, latex(at.kl)),
    ]


def weight_line(lens: Lens, at: Chain) -> str:
    """Return the token's weight under the aggregation."""
    size, tokens = lens.whole or (len(lens.batch.mask), int(lens.terms.mask.sum()))
    constant = plain(lens.objective.constant or 1.0)
    symbols, numbers = {
        "sequence_mean": (r"\frac{1}{G\,|o|}", rf"\frac{{1}}{{{size} \cdot {at.length}}}"),
        "token_mean": (r"\frac{1}{\sum_j |o_j|}", rf"\frac{{1}}{{{tokens}}}"),
        "constant": (r"\frac{1}{G\,L}", rf"\frac{{1}}{{{size} \cdot {constant}}}"),
        "sequence_sum": (r"\frac{1}{G}", rf"\frac{{1}}{{{size}}}"),
        "token_sum": ("1", "1"),
    }[lens.objective.aggregation]
    return rf"w &= {symbols} = {numbers} = {_fine(at.weight)}"


def contribution_lines(lens: Lens, at: Chain) -> list[str]:
    """Return what the token adds to the loss."""
    beta, value, weight = lens.objective.beta, _fine(at.contribution, sign=True), _fine(at.weight)
    if beta == 0:
        return _fold(r"\text{adds}", "-w J", rf"-{weight} \cdot {bracketed(at.objective)}", value)
    inside = rf"-{bracketed(at.objective)} + {plain(beta)} \cdot {latex(at.kl)}"
    return _fold(r"\text{adds}", r"w(-J + \beta k)", rf"{weight} \cdot ({inside})", value)


def pull_lines(lens: Lens, at: Chain) -> list[str]:
    """Return the token's pull."""
    beta, weight = lens.objective.beta, _fine(at.weight)
    value = rf"\boldsymbol{{{_fine(at.pull, sign=True)}}}"
    gradient = r"-\frac{\partial\mathcal{L}}{\partial\log\pi}"
    if beta == 0:
        return _fold(r"\textbf{pull}", rf"{gradient} = w D", rf"{weight} \cdot {bracketed(at.drive)}", value)
    inside = rf"{latex(at.drive)} - {plain(beta)} \cdot {bracketed(at.kl_drive)}"
    symbols = rf"{gradient} = w \big(D - \beta\, \tfrac{{\partial k}}{{\partial\log\pi}}\big)"
    return _fold(r"\textbf{pull}", symbols, rf"{weight} \cdot ({inside})", value)


def _fine(value: float, *, sign: bool = False) -> str:
    """Return a number with as few decimals as keep it within half a thousandth of itself: four to seven."""
    enough = (d for d in range(4, 7) if abs(round(value, d) - value) <= 5e-4 * abs(value))
    return latex(value, next(enough, 7), sign=sign)


def plain(value: float) -> str:
    """Return a hyperparameter for LaTeX: as a person writes it, a power of ten where that is shorter."""
    text = short(value).replace("\N{MINUS SIGN}", "-")
    if "e" not in text:
        return text
    mantissa, exponent = text.split("e")
    return (r"" if mantissa == "1" else mantissa + r"\cdot ") + rf"10^{{{int(exponent)}}}"
