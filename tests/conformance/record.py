"""Run verl's and OpenRLHF's own functions on fixed inputs and write down what they return.

    python -m tests.conformance.record

downloads the two released packages (without their dependencies) into a temporary folder and writes
tests/conformance/recorded/*.json. With GRPO_LAB_TRAINERS set to a folder of unpacked packages nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import types
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.conformance.foreign import (
    FOLDER_VARIABLE,
    RELEASES,
    AlgorithmSettings,
    Settings,
    load_openrlhf,
    load_verl,
    package_folder,
)

RECORDED = Path(__file__).parent / "recorded"
SHAPE = (8, 7)
GROUPS = (2, 4)  # prompts, completions of each

VERL_AGGREGATIONS = (
    "token-mean",
    "token-sum",
    "seq-mean-token-sum",
    "seq-mean-token-sum-norm",
    "seq-mean-token-mean",
)
VERL_SETTINGS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "vanilla": ({}, {"clip_ratio_low": 0.1, "clip_ratio_high": 0.28, "clip_ratio_c": 1.5}),
    "dppo_tv": ({}, {"clip_ratio_low": 0.05, "clip_ratio_high": 0.1, "clip_ratio_c": 1.2}),
    "dppo_kl": ({}, {"clip_ratio_low": 0.02, "clip_ratio_high": 0.05}),
    "gspo": ({}, {"clip_ratio_low": 0.02, "clip_ratio_high": 0.03}),
    "sapo": ({}, {"tau_pos": 0.7, "tau_neg": 2.0}),
    "gpg": ({},),
    "clip_cov": ({"clip_cov_ratio": 1.0, "clip_cov_lb": 0.05, "clip_cov_ub": 1.5},),  # every candidate: no chance in it
    "kl_cov": ({}, {"kl_cov_ratio": 0.3, "ppo_kl_coef": 1.0}),
    "geo_mean": ({}, {"clip_ratio_low": 0.4, "clip_ratio_high": 0.6}),
    "dro": ({"dro_beta": 0.5},),
    "cispo": ({}, {"clip_ratio_low": 0.5, "clip_ratio_high": 0.05}),
}
VERL_KL = ("kl", "abs", "mse", "low_var_kl", "kl+", "abs+", "low_var_kl+")
VERL_ESTIMATORS = (
    *("grpo", "grpo_vectorized", "dr_grpo", "grpo_passk", "gdpo", "rloo", "rloo_vectorized"),
    *("reinforce_plus_plus", "reinforce_plus_plus_baseline", "remax", "opo", "gpg"),
)
OPENRLHF_ESTIMATORS = ("reinforce", "rloo", "reinforce_baseline", "dr_grpo", "group_norm", "flash_reinforce")


def batch(seed: int) -> dict[str, Any]:
    """Return one off-policy micro-batch as plain lists; its counts describe a larger step around it."""
    rng = np.random.default_rng([seed, 11])
    lengths = rng.integers(1, SHAPE[1] + 1, SHAPE[0])
    mask = np.arange(SHAPE[1])[None] < lengths[:, None]
    logp = np.where(mask, -rng.uniform(0.05, 2.5, SHAPE), 0.0)
    return {
        "logp": logp.tolist(),
        "old_logp": np.where(mask, np.minimum(logp - rng.normal(0, 0.5, SHAPE), -0.01), 0.0).tolist(),
        "ref_logp": np.where(mask, np.minimum(logp - rng.normal(0, 1.6, SHAPE), -0.01), 0.0).tolist(),
        "mask": mask.tolist(),
        "advantages": rng.normal(size=SHAPE[0]).tolist(),
        "rewards": rng.integers(0, 4, SHAPE[0]).astype(float).tolist(),
        "second_rewards": rng.normal(size=SHAPE[0]).tolist(),
        "greedy_rewards": np.repeat(rng.normal(size=GROUPS[0]), GROUPS[1]).tolist(),
        "tokens": int(mask.sum()) + 17,
        "sequences": 24,
    }


def _tensors(data: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    names = ("logp", "old_logp", "ref_logp", "advantages", "rewards", "second_rewards", "greedy_rewards")
    tensors = {name: torch.tensor(data[name], dtype=torch.float64) for name in names}
    tensors["mask"] = torch.tensor(data["mask"])
    tensors["token_advantages"] = tensors["advantages"][:, None] * tensors["mask"]
    return tensors


def _differentiated(function: Callable[[Any], Any], logp: Any) -> dict[str, Any]:
    """Return value and gradient of a scalar function of the log-probabilities."""
    logp = logp.clone().requires_grad_()
    value = function(logp)
    value.backward()
    return {"value": float(value.detach()), "gradient": logp.grad.tolist()}


# ---------------------------------------------------------------------------------------------------------- verl


def verl_config(options: Mapping[str, Any], data: Mapping[str, Any] | None) -> Settings:
    """Return an actor configuration with verl's defaults; `data` gives the counts of the whole step."""
    inner = {"clip_cov_ratio": 2e-4, "clip_cov_lb": 1.0, "clip_cov_ub": 5.0, "kl_cov_ratio": 2e-4, "ppo_kl_coef": 0.1}
    outer = {"clip_ratio": 0.2, "clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "clip_ratio_c": 3.0}
    outer |= {"tau_pos": 1.0, "tau_neg": 1.05}
    counts = {} if data is None else {"batch_num_tokens": data["tokens"], "global_batch_size": data["sequences"]}
    return Settings(
        **{name: options.get(name, value) for name, value in outer.items()},
        policy_loss=Settings(**{n: options.get(n, v) for n, v in (inner | {"dro_beta": None}).items()}),
        global_batch_info={"dp_size": 2, "loss_scale_factor": 40, **counts} if data else {},
    )


def verl_losses(core: Any, batches: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each policy loss of verl, under its default settings and others, with each aggregation."""
    records = []
    for name, data in batches.items():
        tensors = _tensors(data)
        for mode, settings in VERL_SETTINGS.items():
            for options in settings:
                for aggregation in VERL_AGGREGATIONS if mode in ("vanilla", "gspo") else ("token-mean",):
                    for step in (True, False):
                        config = verl_config(options, data if step else None)
                        record = {"batch": name, "mode": mode, "options": dict(options), "aggregation": aggregation}
                        records.append({**record, "step": step, **_verl_loss(core, tensors, mode, aggregation, config)})
    return records


def _verl_loss(core: Any, tensors: Mapping[str, Any], mode: str, aggregation: str, config: Settings) -> dict[str, Any]:
    metrics: dict[str, float] = {}

    def loss(logp: Any) -> Any:
        value, logged = core.get_policy_loss_fn(mode)(
            old_log_prob=tensors["old_logp"],
            log_prob=logp,
            advantages=tensors["token_advantages"],
            response_mask=tensors["mask"].double(),
            loss_agg_mode=aggregation,
            config=config,
        )
        metrics.update(logged)
        return value

    return {**_differentiated(loss, tensors["logp"]), "metrics": metrics}


def verl_kl(core: Any, batches: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each KL penalty of verl, averaged over the step's tokens as its KL loss is."""
    records = []
    for name, data in batches.items():
        tensors = _tensors(data)
        for kind in VERL_KL:

            def loss(logp: Any, kind: str = kind, tensors: Any = tensors, data: Any = data) -> Any:
                values = core.kl_penalty(logp, tensors["ref_logp"], kind)
                return core.agg_loss(values, tensors["mask"].double(), "token-mean", 1, data["tokens"])

            records.append({"batch": name, "kind": kind, **_differentiated(loss, tensors["logp"])})
    return records


def verl_advantages(core: Any, batches: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each advantage estimator of verl on outcome rewards, per completion."""
    records = []
    for name, data in batches.items():
        for estimator in VERL_ESTIMATORS:
            table = _verl_advantage(core, _tensors(data), estimator)
            records.append({"batch": name, "estimator": estimator, "advantages": table[:, 0].tolist()})
    return records


def _verl_advantage(core: Any, tensors: Mapping[str, Any], estimator: str) -> Any:
    """Return one estimator's table (completions, tokens): the reward sits on each completion's last token."""
    import torch

    mask = tensors["mask"].double()
    last = mask.sum(dim=1).long() - 1
    rewards = torch.zeros(SHAPE, dtype=torch.float64)
    rewards[torch.arange(SHAPE[0]), last] = tensors["rewards"]
    config = AlgorithmSettings(gamma=1.0, gdpo_reward_keys=["first", "second"], gdpo_reward_weights=[1.0, 0.5])
    arguments = {"token_level_rewards": rewards, "response_mask": mask, "config": config}
    function = core.get_adv_estimator_fn("grpo" if estimator == "dr_grpo" else estimator)
    if estimator not in ("reinforce_plus_plus", "remax"):
        arguments["index"] = np.repeat(np.arange(GROUPS[0]), GROUPS[1])
    if estimator == "dr_grpo":
        arguments["norm_adv_by_std_in_grpo"] = False
    if estimator == "remax":
        arguments["reward_baselines"] = tensors["greedy_rewards"]
    if estimator == "gdpo":
        prompts = torch.zeros((SHAPE[0], 1))
        arguments["batch"] = {"prompts": prompts, "attention_mask": torch.cat([prompts + 1, mask], dim=1).long()}
        arguments["non_tensor_batch"] = {
            "first": tensors["rewards"].numpy(),
            "second": tensors["second_rewards"].numpy(),
        }
    return function(**arguments)[0]


def verl_gae(core: Any, batches: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return verl's GAE before whitening, on a trajectory without masked tokens: returns minus values."""
    import torch

    rng = np.random.default_rng(5)
    rewards, values = rng.normal(size=(1, 6)), rng.normal(size=(1, 6))
    _, returns = core.compute_gae_advantage_return(
        torch.tensor(rewards), torch.tensor(values), torch.ones((1, 6), dtype=torch.float64), 0.95, 0.8
    )
    advantages = returns - torch.tensor(values)
    record = {"gamma": 0.95, "lam": 0.8, "advantages": advantages[0].tolist()}
    return [{"rewards": rewards[0].tolist(), "values": values[0].tolist(), **record}]


def record_verl(folder: Path) -> dict[str, Any]:
    """Return everything that is compared with verl."""
    core = load_verl(folder)
    batches = {str(seed): batch(seed) for seed in range(2)}
    return {
        **_origin("verl", folder / "trainer" / "ppo" / "core_algos.py"),
        "batches": batches,
        "losses": verl_losses(core, batches),
        "kl": verl_kl(core, batches),
        "advantages": verl_advantages(core, batches),
        "gae": verl_gae(core, batches),
    }


# ------------------------------------------------------------------------------------------------------ OpenRLHF

OPENRLHF_SETTINGS: tuple[Mapping[str, Any], ...] = (
    {},
    {"clip_eps_low": 0.1, "clip_eps_high": 0.3},
    {"dual_clip": 3.0},
    {"dual_clip": 1.5},
    {"token_level_loss": False},
    {"policy_loss_type": "gspo"},
    {"policy_loss_type": "gspo", "clip_eps_low": 0.02, "clip_eps_high": 0.03},
)


def openrlhf_losses(module: Any, batches: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return OpenRLHF's PolicyLoss under several settings, alone and as a part of a larger step."""
    records = []
    for name, data in batches.items():
        tensors = _tensors(data)
        counts = {"dp_size": 2, "batch_num_tokens": data["tokens"], "global_batch_size": data["sequences"]}
        for options in OPENRLHF_SETTINGS:
            for step in (True, False):
                result = _openrlhf_loss(module, tensors, options, counts if step else {})
                records.append({"batch": name, "options": dict(options), "step": step, **result})
    return records


def _openrlhf_loss(
    module: Any, tensors: Mapping[str, Any], options: Mapping[str, Any], counts: Mapping[str, Any]
) -> dict[str, Any]:
    clip_ratio: list[float] = []

    def loss(logp: Any) -> Any:
        value, clipped, *_ = module.PolicyLoss(**options)(
            logp, tensors["old_logp"], tensors["token_advantages"], tensors["mask"].double(), **counts
        )
        clip_ratio.append(float(clipped))
        return value

    return {**_differentiated(loss, tensors["logp"]), "clip_ratio": clip_ratio[0]}


def openrlhf_kl(loss_module: Any, utils: Any, batches: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return OpenRLHF's KL estimates (in float32, its own choice) averaged over the tokens."""
    records = []
    for name, data in batches.items():
        tensors = _tensors(data)
        for kind in ("k1", "k2", "k3"):

            def loss(logp: Any, kind: str = kind, tensors: Any = tensors) -> Any:
                values = utils.compute_approx_kl(logp, tensors["ref_logp"], kl_estimator=kind)
                return loss_module.aggregate_loss(values, tensors["mask"].double())

            records.append({"batch": name, "kind": kind, **_differentiated(loss, tensors["logp"])})
    return records


def openrlhf_advantages(maker: Any, batches: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return OpenRLHF's advantages per completion, by its own RemoteExperienceMaker."""
    records = []
    for name, data in batches.items():
        for estimator in OPENRLHF_ESTIMATORS:
            values = _openrlhf_advantage(maker, _tensors(data), estimator)
            records.append({"batch": name, "estimator": estimator, "advantages": values})
    return records


def _openrlhf_advantage(maker: Any, tensors: Mapping[str, Any], estimator: str) -> list[float]:
    import torch

    namespace = types.SimpleNamespace
    advantage = namespace(estimator=estimator, gamma=1.0, lambd=1.0, no_std_norm=False)
    reward = namespace(clip_range=(-10, 10), overlong_buffer_len=None, stop_properly_penalty_coef=None)
    arguments = namespace(
        algo=namespace(advantage=advantage), rollout=namespace(n_samples_per_prompt=GROUPS[1]), reward=reward
    )
    cls = maker.RemoteExperienceMaker
    owner = namespace(strategy=namespace(args=arguments), advantage_estimator=estimator, kl_ctl=namespace(value=0.0))
    owner.get_cumulative_returns = cls.get_cumulative_returns.__get__(owner)
    experience = namespace(
        rewards=tensors["rewards"].clone(),
        index=list(range(SHAPE[0])),
        info={},
        kl=torch.zeros(SHAPE, dtype=torch.float64),
        action_mask=tensors["mask"],
    )
    (result,) = cls.compute_advantages_and_returns(owner, [experience])
    return result.advantages[:, 0].tolist()


def record_openrlhf(folder: Path) -> dict[str, Any]:
    """Return everything that is compared with OpenRLHF."""
    loss, utils, maker = load_openrlhf(folder)
    batches = {str(seed): batch(seed) for seed in range(2)}
    return {
        **_origin("openrlhf", folder / "models" / "loss.py"),
        "batches": batches,
        "losses": openrlhf_losses(loss, batches),
        "kl": openrlhf_kl(loss, utils, batches),
        "advantages": openrlhf_advantages(maker, batches),
    }


# ---------------------------------------------------------------------------------------------------- the script


def _origin(name: str, source: Path) -> dict[str, str]:
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    return {"package": name, "release": RELEASES[name], "file": source.name, "sha256": digest}


RECORDERS: Mapping[str, Callable[[Path], dict[str, Any]]] = {"verl": record_verl, "openrlhf": record_openrlhf}


def _download(folder: Path) -> None:
    """Fetch the released packages and unpack them."""
    wanted = [f"{name}=={release}" for name, release in RELEASES.items()]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), *wanted]
    subprocess.run(command, check=True)
    for archive in folder.glob("*.whl"):
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(folder)


def main() -> None:
    """Write the recordings."""
    with tempfile.TemporaryDirectory() as temporary:
        if not os.environ.get(FOLDER_VARIABLE):
            _download(Path(temporary))
            os.environ[FOLDER_VARIABLE] = temporary
        RECORDED.mkdir(exist_ok=True)
        for name, recorder in RECORDERS.items():
            folder = package_folder(name)
            if folder is None:
                raise SystemExit(f"{name} is not in {os.environ[FOLDER_VARIABLE]}")
            target = RECORDED / f"{name}.json"
            target.write_text(json.dumps(recorder(folder)) + "\n", encoding="utf-8")
            print(f"wrote {target.relative_to(Path.cwd())}")


if __name__ == "__main__":
    main()
