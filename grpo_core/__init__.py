"""The mathematics of GRPO on NumPy and torch alike: what a slider shows is what the trainer differentiates.

Data arrays are positional, hyperparameters keyword-only. Results have the kind, dtype and device of the inputs.
Shapes: G completions in a group, B completions in a batch, T padded tokens. Log-probabilities are in nats.
"""

from grpo_core._moments import as_rewards
from grpo_core.advantages import (
    AdvantageSpec,
    GroupAdvantages,
    binary_advantages,
    compute_advantages,
    gae,
    group_advantages,
    group_kind,
    leave_one_out_advantages,
    mixed_group_probability,
    multi_reward_advantages,
    process_advantages,
    sum_rewards,
)
from grpo_core.aggregation import masked_mean, pooled_mean, token_weights, weighted_sum
from grpo_core.baselines import Whitening
from grpo_core.groups import Accounting, Group, GroupBatch
from grpo_core.kl import categorical_kl, kl_estimate
from grpo_core.objective import LossTerms, Objective, loss_terms
from grpo_core.ratios import importance_ratio
from grpo_core.recipes import RECIPES, Recipe, get_recipe
from grpo_core.statistics import batch_statistics, kind_counts, length_statistics, ratio_histogram, reward_statistics
from grpo_core.surrogates import SURROGATES, clip_saturated, clipped_slope, clipped_surrogate

__all__ = [
    "RECIPES",
    "SURROGATES",
    "Accounting",
    "AdvantageSpec",
    "Group",
    "GroupAdvantages",
    "GroupBatch",
    "LossTerms",
    "Objective",
    "Recipe",
    "Whitening",
    "as_rewards",
    "batch_statistics",
    "binary_advantages",
    "categorical_kl",
    "clip_saturated",
    "clipped_slope",
    "clipped_surrogate",
    "compute_advantages",
    "gae",
    "get_recipe",
    "group_advantages",
    "group_kind",
    "importance_ratio",
    "kind_counts",
    "kl_estimate",
    "leave_one_out_advantages",
    "length_statistics",
    "loss_terms",
    "masked_mean",
    "mixed_group_probability",
    "multi_reward_advantages",
    "pooled_mean",
    "process_advantages",
    "ratio_histogram",
    "reward_statistics",
    "sum_rewards",
    "token_weights",
    "weighted_sum",
]
