"""Named algorithms as data: what a paper defines, and what a trainer computes under that name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from grpo_core.advantages import AdvantageSpec
from grpo_core.objective import Objective


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How groups are made: their size, the sampling temperature, updates on each batch, and dynamic sampling.

    `inner_epochs` is mu, the updates made on one batch of completions; `dynamic` whether groups without signal are
    replaced by sampling more prompts (DAPO).
    """

    group_size: int
    temperature: float = 1.0
    inner_epochs: int = 1
    dynamic: bool = False


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a recipe is defined: a paper with its equation, or a trainer with its version."""

    kind: str  # "paper" | "trainer"
    title: str
    where: str

    def __str__(self) -> str:
        return f"{self.title}, {self.where}"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One algorithm: objective, advantage and sampling as data, with the source that defines them.

    `constant_from`: "max_completion_length" where the aggregation's constant is the run's length limit (fill it in with
    `with_constant`), else None.
    """

    name: str
    title: str
    objective: Objective
    advantage: AdvantageSpec
    sampling: Sampling
    source: Source
    constant_from: str | None = None
    note: str = ""

    def with_constant(self, max_completion_length: float) -> Objective:
        """Return the objective with the run's length limit filled in, where the recipe asks for it."""
        if self.constant_from is None:
            return self.objective
        return self.objective.replace(constant=float(max_completion_length))


def _trl(name: str, title: str, objective: Objective, note: str, constant_from: str | None = None) -> Recipe:
    return Recipe(
        name=name,
        title=title,
        objective=objective.replace(kl_ratio_weighted=True),
        advantage=AdvantageSpec(estimator="group", ddof=1, eps=1e-4, scale="group"),
        sampling=Sampling(group_size=8),
        source=Source(
            kind="trainer", title="TRL 1.16.0", where=f"GRPOTrainer, loss_type {name.removeprefix('trl_')!r}"
        ),
        constant_from=constant_from,
        note=note,
    )


_PLACEHOLDER_LENGTH = 512.0  # TRL's default max_completion_length, replaced by with_constant

_ALL = (
    Recipe(
        name="grpo_paper",
        title="GRPO (paper)",
        objective=Objective(beta=0.04),
        advantage=AdvantageSpec(ddof=0, eps=0.0),
        sampling=Sampling(group_size=64),
        source=Source(kind="paper", title="DeepSeekMath, arXiv:2402.03300", where="eq. 3 and 4, sec. 4.1.2"),
        note="Clipped ratio, k3 in the loss, mean over tokens and then over completions.",
    ),
    Recipe(
        name="dr_grpo_paper",
        title="Dr. GRPO (paper)",
        objective=Objective(aggregation="constant", constant=_PLACEHOLDER_LENGTH),
        advantage=AdvantageSpec(scale="none"),
        sampling=Sampling(group_size=8),
        source=Source(kind="paper", title="Understanding R1-Zero-Like Training, arXiv:2503.20783", where="sec. 3.2"),
        constant_from="max_completion_length",
        note="No division by the std, no division by the completion's own length.",
    ),
    Recipe(
        name="dapo_paper",
        title="DAPO (paper)",
        objective=Objective(epsilon_high=0.28, aggregation="token_mean", scope="global"),
        advantage=AdvantageSpec(ddof=0, eps=0.0),
        sampling=Sampling(group_size=16, dynamic=True, inner_epochs=16),
        source=Source(kind="paper", title="DAPO, arXiv:2503.14476", where="eq. 8 to 12"),
        note="Higher upper clip, every token alike, groups without signal sampled again, no KL.",
    ),
    Recipe(
        name="gspo_paper",
        title="GSPO (paper)",
        objective=Objective(ratio_level="sequence", epsilon_low=3e-4, epsilon_high=4e-4),
        advantage=AdvantageSpec(ddof=0, eps=0.0),
        sampling=Sampling(group_size=16, inner_epochs=4),
        source=Source(kind="paper", title="GSPO, arXiv:2507.18071", where="eq. 5 to 7, clip range sec. 5.1"),
        note="One ratio for each completion, the geometric mean of its token ratios; the clip range is far smaller.",
    ),
    Recipe(
        name="rloo_paper",
        title="RLOO (paper)",
        objective=Objective(surrogate="policy_gradient", aggregation="sequence_sum"),
        advantage=AdvantageSpec(estimator="leave_one_out"),
        sampling=Sampling(group_size=4),
        source=Source(kind="paper", title="Back to Basics, arXiv:2402.14740", where="sec. 2.3"),
        note="REINFORCE on the whole completion, with the other completions' mean reward as baseline.",
    ),
    _trl("trl_grpo", "GRPO (TRL)", Objective(), "Mean over completions of each completion's token mean."),
    _trl(
        "trl_bnpo",
        "BNPO (TRL)",
        Objective(aggregation="token_mean"),
        "Token mean over the micro-batch, so that it depends on how the batch is cut.",
    ),
    _trl(
        "trl_dr_grpo",
        "Dr. GRPO (TRL)",
        Objective(aggregation="constant", constant=_PLACEHOLDER_LENGTH),
        "Divides by the length limit. The std still divides the advantage unless scale_rewards is 'none'.",
        constant_from="max_completion_length",
    ),
    _trl(
        "trl_dapo",
        "DAPO (TRL, the default)",
        Objective(aggregation="token_mean", scope="global"),
        "Token mean over the whole optimizer step. Clip range, KL and sampling are TRL's defaults, not the paper's.",
    ),
)

RECIPES: Mapping[str, Recipe] = MappingProxyType({recipe.name: recipe for recipe in _ALL})
"""Every named algorithm."""


def get_recipe(name: str) -> Recipe:
    """Return the recipe of that name; ValueError that suggests the nearest name otherwise."""
    if name in RECIPES:
        return RECIPES[name]
    near = difflib.get_close_matches(str(name), RECIPES, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"known recipes: {', '.join(RECIPES)}"
    raise ValueError(f"there is no recipe {name!r}; {hint}")
