"""What the Advantages page says about the current group."""

from __future__ import annotations

from typing import Any

import numpy as np

from app.editing import with_reward
from app.formulas import plain_spec
from app.lens import Lens
from app.numbers import plain, signed
from app.widgets import Question, Table
from app.words import prose, t
from grpo_core import (
    RECIPES,
    AdvantageSpec,
    binary_advantages,
    group_advantages,
    kind_probabilities,
    mixed_group_probability,
)

SMALL_GAP = 0.1
SIZES = (2, 4, 8, 16, 64)


def scaled(spec: AdvantageSpec) -> bool:
    """Return whether advantages are in standard deviations rather than in the unit of the reward."""
    if spec.whitening is not None or spec.reward_aggregation == "normalize_then_sum":
        return True
    return spec.estimator in ("group", "best_of_group") and spec.scale != "none"


def focus(lens: Lens) -> int:
    """Return the completion whose number the formula shows: the one furthest from zero."""
    return int(np.argmax(np.abs(lens.advantages)))


def notice(lens: Lens) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    kind, missing = lens.group.kind, lens.group.size - int(lens.scores.valid_count)
    if not plain_spec(lens.spec):
        return "other-estimator", {"baseline": t(f"param.estimator.{lens.spec.estimator}"), "whitened": _whitened(lens)}
    if lens.group.size == 1:
        return "single", {}
    if kind != "mixed":
        return kind, {}
    if missing:
        return "missing", {"missing": str(missing), "scored": str(int(lens.scores.valid_count))}
    rewards = lens.group.reward_array
    gap = float(rewards.max() - rewards.min())
    if gap <= SMALL_GAP:
        return "hair-gap", {"gap": plain(gap, 2), "best": signed(lens.advantages.max(), 2)}
    if set(rewards.tolist()) == {0.0, 1.0}:
        return _binary(lens, rewards)
    return "spread", {"other": _other_ddof(lens)}


def _whitened(lens: Lens) -> str:
    if lens.spec.reward_aggregation == "normalize_then_sum":
        return t("advantage.parts")
    return t("advantage.whitened" if lens.spec.whitening is not None else "advantage.not_whitened")


def _binary(lens: Lens, rewards: np.ndarray) -> tuple[str, dict[str, Any]]:
    right = int(rewards.sum())
    wrong = len(rewards) - right
    numbers = {"best": signed(lens.advantages.max(), 2), "worst": signed(lens.advantages.min(), 2)}
    if lens.spec.estimator == "leave_one_out" or lens.spec.scale == "none":
        return "unscaled", numbers
    numbers |= {"right": str(right), "wrong": str(wrong), "other": _other_ddof(lens)}
    if right < wrong:
        return "rare-success", numbers
    return ("rare-failure" if right > wrong else "half"), numbers


def _other_ddof(lens: Lens) -> str:
    other = group_advantages(lens.group.reward_array, ddof=1 - lens.spec.ddof, eps=lens.spec.eps).advantages
    return signed(other[focus(lens)], 2)


def question(lens: Lens) -> Question:
    """Ask what one changed reward does to the first completion's advantage."""
    group = lens.group
    if group.size == 1:
        return Question(prose("advantages", "ask-single"), 0.0, prose("advantages", "worked-single"))
    index = next((i for i in range(1, group.size) if group.rewards[i] != 1.0), 1)
    changed = with_reward(group, index, 0.0 if group.rewards[index] == 1.0 else 1.0)
    result = changed.advantages(lens.spec, greedy_reward=lens.values["greedy"])
    numbers = {"number": index + 1, "reward": plain(changed.rewards[index], 0)}
    worked = prose(
        "advantages", "worked", answer=signed(result.advantages[0]), mean=plain(result.mean), std=plain(result.std)
    )
    return Question(prose("advantages", "ask", **numbers), float(result.advantages[0]), worked)


def rate_question() -> Question:
    """Ask for the advantage of one success among ten."""
    success, _ = binary_advantages(np.array([0.1]))
    worked = prose("advantages", "worked-rates", answer=signed(success[0]))
    return Question(prose("advantages", "ask-rates"), float(success[0]), worked)


def mixed_question(lens: Lens) -> Question:
    """Ask how often four completions carry a signal at even odds."""
    value = float(mixed_group_probability(0.5, 4))
    return Question(prose("advantages", "ask-mixed"), value, prose("advantages", "worked-mixed", answer=plain(value)))


def table(lens: Lens) -> Table:
    """Return rewards and advantages."""
    rows = [
        (i + 1, "" if reward is None else reward, float(a))
        for i, (reward, a) in enumerate(zip(lens.group.rewards, lens.advantages, strict=True))
    ]
    return Table(("completion", "reward", "advantage"), rows)


def compared(lens: Lens) -> tuple[list[str], np.ndarray]:
    """Return the group's advantages under four named definitions."""
    specs = {
        t("estimator.paper"): RECIPES["grpo_paper"].advantage,
        t("estimator.trl"): RECIPES["trl_grpo"].advantage,
        t("estimator.dr"): RECIPES["dr_grpo_paper"].advantage,
        t("estimator.rloo"): RECIPES["rloo_paper"].advantage,
        t("estimator.reinforce"): RECIPES["reinforce_plus_plus_paper"].advantage,
        t("estimator.opo"): RECIPES["opo_paper"].advantage,
        t("estimator.gpg"): RECIPES["gpg_paper"].advantage,
        t("estimator.pass"): RECIPES["verl_grpo_passk"].advantage,
        t("estimator.remax"): RECIPES["remax_paper"].advantage,
    }
    greedy = float(lens.values["greedy"])
    return list(specs), np.stack([lens.group.advantages(s, greedy_reward=greedy).advantages for s in specs.values()])


def compared_table(lens: Lens) -> Table:
    """Return the comparison as data."""
    names, values = compared(lens)
    header = ("definition", *(f"completion {i + 1}" for i in range(lens.group.size)))
    return Table(header, [(name, *map(float, row)) for name, row in zip(names, values, strict=True)])


def rates(lens: Lens) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[float, float, float]]:
    """Return success rates, both advantages there, and the point in focus."""
    q = np.linspace(0.01, 0.99, 197)
    success, failure = binary_advantages(q)
    at = min(max(float(lens.values["p"]), 0.01), 0.99)
    own = binary_advantages(np.array([at]))
    return q, success, failure, (at, float(own[0][0]), float(own[1][0]))


def rate_table(lens: Lens) -> Table:
    """Return both curves as data."""
    q, success, failure, _ = rates(lens)
    rows = [tuple(map(float, row)) for row in zip(q, success, failure, strict=True)]
    return Table(("success rate", "advantage of a success", "advantage of a failure"), rows)


def mixed(lens: Lens) -> tuple[np.ndarray, list[tuple[int, np.ndarray]], tuple[float, float], int]:
    """Return p, one curve for each group size, the point in focus and its group size."""
    p, own, size = np.linspace(0, 1, 101), float(lens.values["p"]), int(lens.values["mix_g"])
    sizes, missing = [g for g in SIZES if g != size] + [size], float(lens.values["miss"])
    curves = [(g, np.asarray(kind_probabilities(p, g, unscored=missing)["mixed"])) for g in sizes]
    return p, curves, (own, kinds(lens)["mixed"]), size


def kinds(lens: Lens) -> dict[str, float]:
    """Return how likely each kind of group is."""
    v = lens.values
    found = kind_probabilities(np.array([float(v["p"])]), int(v["mix_g"]), unscored=float(v["miss"]))
    return {kind: float(chance[0]) for kind, chance in found.items()}


def kind_notice(lens: Lens) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    chances = kinds(lens)
    numbers = {kind.replace("-", "_"): plain(100 * chance, 1) for kind, chance in chances.items()}
    most = max(chances, key=chances.__getitem__)
    return ("mixed" if most == "mixed" else f"mixed-{most}"), numbers


def mixed_table(lens: Lens) -> Table:
    """Return the curves as data."""
    p, curves, _, _ = mixed(lens)
    header = ("p", *(f"G = {g}" for g, _ in curves))
    return Table(header, [(float(x), *(float(c[k]) for _, c in curves)) for k, x in enumerate(p)])
