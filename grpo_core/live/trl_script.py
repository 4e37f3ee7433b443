"""The settings of a run as a script for TRL's GRPOTrainer, and what of them TRL cannot do.

Names follow TRL 1.16. The script takes prompts, verifier and start weights from GRPO Lab, so that it trains the same
thing; everything else is TRL's. This module imports neither TRL nor torch.
"""

import pprint
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from grpo_core import Objective, get_recipe
from grpo_core.live.config import RunConfig, objective_of

LOSS_TYPES: Mapping[tuple[str, str, str], str] = MappingProxyType(
    {
        ("clip", "sequence_mean", "batch"): "grpo",
        ("clip", "token_mean", "batch"): "bnpo",
        ("clip", "token_mean", "global"): "dapo",
        ("clip", "constant", "batch"): "dr_grpo",
        ("clip", "sequence_sum", "batch"): "luspo",
        ("cispo", "token_mean", "global"): "cispo",
        ("sapo", "sequence_mean", "batch"): "sapo",
        ("vespo", "token_mean", "global"): "vespo",
    }
)
"""(surrogate, aggregation, scope of its counts) -> TRL's loss_type. With one batch a step on one device, both scopes
are the same; what is not here gets the loss_type of its aggregation."""
_BY_AGGREGATION = {"sequence_mean": "grpo", "token_mean": "dapo", "constant": "dr_grpo", "sequence_sum": "luspo"}
_ONLY_HERE = (
    "refills", "verifier_failures", "fault", "lora_rank", "reward_source", "iteration_steps", "supervision",
)  # fmt: skip
"""Settings that the script leaves out when they are not what they are by default."""


def grpo_arguments(config: RunConfig) -> dict[str, Any]:
    """Give the arguments of TRL's GRPOConfig that say the same as the run's settings, as far as it has them."""
    objective = objective_of(config)
    arguments: dict[str, Any] = {
        "learning_rate": config.learning_rate,
        "lr_scheduler_type": "constant",
        "adam_beta1": 0.9,
        "adam_beta2": 0.99,
        "adam_epsilon": 1e-8,
        "weight_decay": 0.0,
        "max_grad_norm": config.max_grad_norm,
        "max_steps": config.steps,
        "per_device_train_batch_size": config.rows,
        "num_generations": config.group_size,
        "num_iterations": config.inner_epochs,
        "max_completion_length": config.max_new_tokens,
        "temperature": config.temperature,
        "top_p": config.top_p,
        "loss_type": loss_type(objective),
        "scale_rewards": _scale(config),
        "beta": objective.beta,
        "use_bias_correction_kl": objective.kl_ratio_weighted,
        "epsilon": objective.epsilon_low,
        "epsilon_high": objective.options.get("weight_high", objective.epsilon_high),
        "importance_sampling_level": "token" if objective.ratio_level == "token" else "sequence",
        "mask_truncated_completions": objective.mask_truncated,
        "top_entropy_quantile": objective.top_entropy_quantile,
        "seed": config.seed,
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "bf16": config.dtype == "bfloat16",
    }
    taus = {f"sapo_temperature_{name[:3]}": objective.options.get(f"tau_{name}") for name in ("positive", "negative")}
    optional = {**taus, "delta": objective.delta, "off_policy_mask_threshold": objective.off_policy_threshold}
    arguments |= {name: value for name, value in optional.items() if value is not None}
    if config.refresh_every and objective.beta > 0:
        arguments |= {
            "sync_ref_model": True,
            "ref_model_mixup_alpha": 1.0,
            "ref_model_sync_steps": config.refresh_every,
        }
    if config.device == "cpu":
        arguments["use_cpu"] = True
    return arguments


def loss_type(objective: Objective) -> str:
    """Give the nearest loss_type of TRL."""
    exact = LOSS_TYPES.get((objective.surrogate, objective.aggregation, objective.scope))
    return exact or _BY_AGGREGATION[objective.aggregation]


def differences(config: RunConfig) -> list[str]:
    """Say what of a run's settings the script cannot do, one line each; none for those of TRL's own recipes."""
    recipe, objective = get_recipe(config.recipe), objective_of(config)
    spec, found = recipe.advantage, []
    nearest = loss_type(objective)
    if (objective.surrogate, objective.aggregation, nearest) not in {(s, a, t) for (s, a, _), t in LOSS_TYPES.items()}:
        found.append(f"the surrogate is {objective.surrogate!r} here; loss_type {nearest!r} clips the ratio")
    if objective.ratio_level == "trajectory":
        found.append("the ratio is that of the whole completion here, its geometric mean in the script")
    if objective.beta > 0 and objective.kl_estimator != "k3":
        found.append(f"the KL estimator is {objective.kl_estimator!r} here, 'k3' in TRL")
    if objective.entropy_coefficient:
        found.append(f"the entropy bonus of {objective.entropy_coefficient:g} is left out")
    if spec.estimator != "group":
        found.append(f"advantages are {spec.estimator!r} here; TRL centres on the mean of the group")
    if spec.whitening is not None:
        found.append("advantages are not whitened over the batch")
    if _scale(config) != "none" and (spec.ddof, spec.eps) != (1, 1e-4):
        found.append(f"the std has ddof {spec.ddof} and eps {spec.eps:g} here, ddof 1 and eps 0.0001 in TRL")
    default = RunConfig()
    changed = [name for name in _ONLY_HERE if getattr(config, name, None) != getattr(default, name, None)]
    return found + [f"{name}={getattr(config, name)!r} is left out" for name in changed]


def trl_script(config: RunConfig, *, title: str = "a run of GRPO Lab") -> str:
    """Write the script. title is a comment of its first line; line breaks in it become blanks."""
    settings = {k: v for k, v in config.to_dict().items() if v != getattr(RunConfig(), k) and k not in ("note", "pace")}
    missing = differences(config)
    notes = ["What TRL does not do as the run did:", *(f"- {one}" for one in missing)] if missing else []
    return _SCRIPT.format(
        title=" ".join(title.split()),
        notes="".join(f"# {line}\n" for line in notes),
        settings=pprint.pformat(settings, width=110, sort_dicts=False),
        arguments=pprint.pformat(grpo_arguments(config), width=110, sort_dicts=False),
    )


def _scale(config: RunConfig) -> str:
    return get_recipe(config.recipe).advantage.scale if config.scale_rewards == "recipe" else config.scale_rewards


_SCRIPT = '''\
# The settings of {title}, for TRL's GRPOTrainer (TRL 1.16).
# Run it where GRPO Lab's grpo_core can be imported, with: pip install trl==1.16.0
{notes}
import random
import tempfile

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from grpo_core.live.config import RunConfig
from grpo_core.live.model import save_policy, start_policy
from grpo_core.live.task_files import task_of

RUN = RunConfig(**{settings})
ARGUMENTS = {arguments}

task = task_of(RUN)
problems = task.sample(random.Random(f"prompts {{RUN.seed}}"), RUN.prompts_per_step * RUN.steps)
policy = start_policy(RUN, task.start)
prompts = [policy.prompt_text(problem.prompt) for problem in problems]
data = Dataset.from_dict({{"prompt": prompts, "number": list(range(len(problems)))}})


def reward(completions, completion_ids, number, **_):
    """The verifier's reward; None where it cannot say."""
    scores = task.scores(completions, [problems[i] for i in number], [len(ids) for ids in completion_ids])
    return [score.reward for score in scores]


def main():
    folder = tempfile.mkdtemp()
    save_policy(policy, folder)  # TRL loads the reference from a folder of its own
    trainer = GRPOTrainer(
        model=folder,
        reward_funcs=reward,
        args=GRPOConfig(output_dir=tempfile.mkdtemp(), **ARGUMENTS),
        train_dataset=data,
        processing_class=policy.tokenizer,
    )
    trainer.train()
    for row in trainer.state.log_history:
        print({{name: row[name] for name in ("step", "loss", "reward", "kl") if name in row}})


if __name__ == "__main__":
    main()
'''
