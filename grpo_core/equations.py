r"""The LaTeX of every choice, composed the way loss_terms composes the numbers.

Symbols: i a completion, t a token, r the importance ratio, A the advantage, R the reward, w the weight of a token,
\pi the current, \pi_{old} the old and \pi_{ref} the reference policy, sg a stop-gradient.
"""

from __future__ import annotations

from collections.abc import Mapping

from grpo_core.advantages import AdvantageSpec
from grpo_core.objective import Objective

RATIO: Mapping[str, str] = {
    "token": r"r_{i,t} = \frac{\pi(o_{i,t})}{\pi_{old}(o_{i,t})}",
    "sequence": r"r_i = \Big(\prod_t \frac{\pi(o_{i,t})}{\pi_{old}(o_{i,t})}\Big)^{1/|o_i|}",
    "trajectory": r"r_i = \prod_t \frac{\pi(o_{i,t})}{\pi_{old}(o_{i,t})}",
}

SURROGATE: Mapping[str, str] = {
    "clip": r"J = \min\big(r A,\ \mathrm{clip}(r, 1-\epsilon_{low}, 1+\epsilon_{high})\, A\big)",
    "clip+delta": r"J = \min\big(\min(r, \delta) A,\ \mathrm{clip}(r, 1-\epsilon_{low}, 1+\epsilon_{high})\, A\big)",
    "policy_gradient": r"J = A \log \pi",
    "unclipped": r"J = r A",
    "cispo": r"J = \mathrm{sg}\big(\mathrm{clip}(r, w_{low}, w_{high})\big)\, A \log \pi",
    "sapo": r"J = \frac{4}{\tau}\, \sigma\big(\tau (r - 1)\big)\, A,\quad \tau = \tau_{+}\ (A > 0),\ \tau_{-}",
    "vespo": r"J = \mathrm{sg}\big(e^{\lambda + k \log W - \lambda W}\big)\, A \log \pi,\quad W = \prod_t r_t",
    "gmpo": r"J = A \exp\Big(\frac{1}{|o|} \sum_t c_t\Big),\quad c_t = \log r_t\ \text{clipped}",
    "dppo_tv": r"J = \mathrm{sg}(\min(r, c))\, A \log \pi\ \cdot \mathbf{1}\big[|\pi - \pi_{old}| \le \epsilon\big]",
    "dppo_kl": r"J = \mathrm{sg}(\min(r, c))\, A \log \pi\ \cdot \mathbf{1}\big[\mathrm{KL}_{bin} \le \epsilon\big]",
    "dro": r"J = A \log \pi - \frac{\beta_{dro}}{2} (\log r)^2",
    "kl_cov": r"J = r A - c\, |\log r| \cdot \mathbf{1}[\text{largest covariances}]",
    "clip_cov": r"J = J_{clip} \cdot \mathbf{1}[\text{not drawn among the high covariances}]",
}

KL: Mapping[str, str] = {
    "k1": r"\log\frac{\pi}{\pi_{ref}}",
    "k2": r"\tfrac12 \big(\log\frac{\pi}{\pi_{ref}}\big)^2",
    "k3": r"\frac{\pi_{ref}}{\pi} - \log\frac{\pi_{ref}}{\pi} - 1",
    "abs": r"\big|\log\frac{\pi}{\pi_{ref}}\big|",
}

WEIGHT: Mapping[str, str] = {
    "sequence_mean": r"w_{i,t} = \frac{1}{B\, |o_i|}",
    "token_mean": r"w_{i,t} = \frac{1}{\sum_j |o_j|}",
    "constant": r"w_{i,t} = \frac{1}{B\, L}",
    "sequence_sum": r"w_{i,t} = \frac{1}{B}",
    "token_sum": r"w_{i,t} = 1",
}

ADVANTAGE: Mapping[str, str] = {
    "leave_one_out": r"A_i = R_i - \frac{1}{G-1}\sum_{j \ne i} R_j",
    "reward": r"A_i = R_i",
    "batch_mean": r"A_i = R_i - \mathrm{mean}_{batch}(R)",
    "length_weighted": r"A_i = R_i - \frac{\sum_j |o_j| R_j}{\sum_j |o_j|}",
    "greedy_baseline": r"A_i = R_i - R_{greedy}",
    "nonzero_scaled": r"A_i = \frac{N}{N_{R \ne 0}} \big(R_i - \mathrm{mean}(R)\big)",
    "best_of_group": r"A_i = \frac{R_{(1)} - R_{(2)}}{\mathrm{std}(R) + \varepsilon}\ \text{for the best, else}\ 0",
}


def advantage_equation(spec: AdvantageSpec) -> str:
    """Return the LaTeX of the advantage that `spec` names."""
    equation = _group_equation(spec) if spec.estimator == "group" else ADVANTAGE[spec.estimator]
    if spec.reward_aggregation == "normalize_then_sum":
        each = r"\frac{R_{i,f} - \mathrm{mean}(R_f)}{\mathrm{std}(R_f) + \varepsilon}"
        equation = rf"A_i = \mathrm{{norm}}_{{batch}}\Big(\sum_f w_f\, {each}\Big)"
    if spec.whitening is not None:
        equation += r",\quad A \leftarrow \frac{A - \mathrm{mean}_{tokens}(A)}{\mathrm{std}_{tokens}(A)}"
    return equation


def _group_equation(spec: AdvantageSpec) -> str:
    if spec.scale == "none":
        return r"A_i = R_i - \mathrm{mean}(R)"
    std = r"\mathrm{std}_{batch}(R)" if spec.scale == "batch" else r"\mathrm{std}(R)"
    eps = r" + \varepsilon" if spec.eps else ""
    return rf"A_i = \frac{{R_i - \mathrm{{mean}}(R)}}{{{std}{eps}}}"


def surrogate_equation(objective: Objective) -> str:
    """Return the LaTeX of the objective's per-token term."""
    name = objective.surrogate
    return SURROGATE["clip+delta" if name == "clip" and objective.delta is not None else name]


def kl_equation(objective: Objective) -> str:
    """Return the LaTeX of the objective's KL estimate."""
    base = rf"\Big({KL[objective.kl_estimator.removesuffix('+')]}\Big)"
    return rf"r \cdot {base}" if objective.kl_ratio_weighted else base


def loss_equation(objective: Objective) -> str:
    """Return the LaTeX of the loss: what is summed with which weights."""
    if objective.beta == 0:
        return r"\mathcal{L} = -\sum_{i,t} w_{i,t}\, J_{i,t}"
    return rf"\mathcal{{L}} = -\sum_{{i,t}} w_{{i,t}} \Big[J_{{i,t}} - \beta\, {kl_equation(objective)}\Big]"
