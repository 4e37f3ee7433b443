"""A real GRPOTrainer, generation and all: its rewards to advantages, and the losses of whole optimizer steps."""

import json
import logging
import math

import numpy as np
import pytest

from grpo_core import (
    Accounting,
    AdvantageSpec,
    GroupBatch,
    batch_statistics,
    get_recipe,
    length_statistics,
    loss_terms,
    multi_reward_advantages,
    reward_statistics,
)
from tests.conformance import tiny_trainer
from tests.support import to_numpy

pytest.importorskip("trl", reason="TRL is in requirements-test.txt")

# TRL 1.16 still reads an attribute that transformers 5.24 has renamed.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

G = 4
PROMPTS = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    path = tmp_path_factory.mktemp("tiny")
    tiny_trainer.save_model(path)
    return path


class Table:
    """Reward functions that answer from a table (rows, functions), with None where it holds nan."""

    def __init__(self, functions):
        self.values = np.zeros((PROMPTS * G, functions))
        self.functions = [self._function(i) for i in range(functions)]

    def _function(self, index):
        def reward(completions, **_):
            return [None if math.isnan(x) else x for x in self.values[:, index].tolist()]

        reward.__name__ = f"reward_{index}"
        return reward


NAN = math.nan
ONE = {
    "plain": [[1, 0, 0, 0], [0.3, 0.7, 0.2, 0.9], [2, -1, 5, 3], [0, 1, 0, 1]],
    "equal groups": [[1, 1, 1, 1], [0, 0, 0, 0], [0.1, 0.1, 0.1, 0.1], [0, 1, 2, 4]],
    "a close call": [[0.51, 0.5, 0.5, 0.5], [1, 0, 0, 0], [100, 101, 100, 100], [0.25, 0.5, 0.75, 1]],
    "some unscored": [[1, NAN, 0, 1], [NAN, NAN, 0, 1], [NAN, 0.7, NAN, NAN], [NAN, NAN, NAN, NAN]],
}
TWO = {
    "two functions": np.random.default_rng(0).normal(size=(4, 4, 2)),
    "none here and there": np.where(
        np.random.default_rng(1).random((4, 4, 2)) < 0.35, NAN, np.random.default_rng(2).integers(0, 3, (4, 4, 2))
    ),
    "one function silent in a group": np.stack(
        [np.array([[1, 0, 2, 1.0]] * 4), np.array([[NAN] * 4, [1, 1, 1, 1], [0, 1, 0, 1], [NAN, 2, NAN, NAN]])], axis=-1
    ),
}
WEIGHTS = (None, [1.0, 0.25], [-0.5, 2.0])


@pytest.fixture(scope="module")
def trained(folder):
    """Return a trainer and its table for one and for two reward functions."""
    tables = {count: Table(count) for count in (1, 2)}
    return {
        count: (tiny_trainer.trainer(folder, table.functions, steps_per_generation=2), table)
        for count, table in tables.items()
    }


class TestAdvantages:
    """The rewards go in through real reward functions and come out as the trainer's advantages."""

    @staticmethod
    def trl(trained, parts, **attributes):
        trainer, table = trained[parts.shape[-1]]
        table.values = parts.reshape(-1, parts.shape[-1])
        for name, value in attributes.items():
            setattr(trainer, name, value)
        trainer._metrics["train"].clear()
        trainer.model.train()
        rows = [{"prompt": f"{p}+1=", "answer": str(p + 1)} for p in range(PROMPTS) for _ in range(G)]
        output = trainer._generate_and_score_completions(rows)
        metrics = {name: values[-1] for name, values in trainer._metrics["train"].items()}
        return to_numpy(output["advantages"]).reshape(PROMPTS, G), metrics

    @pytest.mark.parametrize("scale", ["group", "batch", "none"])
    @pytest.mark.parametrize("name", ONE)
    def test_one_reward(self, trained, name, scale):
        parts = np.array(ONE[name], dtype=float)[..., None]
        theirs, metrics = self.trl(
            trained, parts, scale_rewards=scale, multi_objective_aggregation="sum_then_normalize"
        )
        ours = multi_reward_advantages(parts, AdvantageSpec(scale=scale)).advantages
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)
        statistics = reward_statistics(parts[..., 0])
        for key in ("reward", "reward_std"):
            np.testing.assert_allclose(statistics[key], metrics[key], rtol=1e-6)

    @pytest.mark.parametrize("weights", WEIGHTS, ids=str)
    @pytest.mark.parametrize("scale", ["group", "batch", "none"])
    @pytest.mark.parametrize("aggregation", ["sum_then_normalize", "normalize_then_sum"])
    @pytest.mark.parametrize("name", TWO)
    def test_two_rewards(self, trained, name, aggregation, scale, weights):
        import torch

        parts = np.asarray(TWO[name], dtype=float)
        theirs, _ = self.trl(
            trained,
            parts,
            scale_rewards=scale,
            multi_objective_aggregation=aggregation,
            reward_weights=torch.tensor(weights or [1.0, 1.0]),
        )
        spec = AdvantageSpec(scale=scale, reward_aggregation=aggregation)
        ours = multi_reward_advantages(parts, spec, weights=weights).advantages
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6)
        assert (theirs[np.isnan(parts).all(axis=-1)] == 0).all()

    def test_share_of_groups_without_spread(self, trained):
        parts = np.array(ONE["equal groups"], dtype=float)[..., None]
        _, metrics = self.trl(trained, parts, scale_rewards="group", multi_objective_aggregation="sum_then_normalize")
        assert reward_statistics(parts[..., 0])["frac_reward_zero_std"] == metrics["frac_reward_zero_std"] == 0.75


SETTINGS = {
    "dapo, off-policy, KL, temperature": {
        "loss_type": "dapo",
        "gradient_accumulation_steps": 2,
        "steps_per_generation": 4,
        "beta": 0.04,
        "temperature": 0.7,
    },
    "bnpo, two inner epochs": {"loss_type": "bnpo", "gradient_accumulation_steps": 2, "num_iterations": 2},
    "sequence level, asymmetric": {
        "loss_type": "grpo",
        "importance_sampling_level": "sequence",
        "num_iterations": 2,
        "epsilon": 0.01,
        "epsilon_high": 0.02,
    },
    "dr_grpo, truncated masked, top entropy": {
        "loss_type": "dr_grpo",
        "num_iterations": 2,
        "mask_truncated_completions": True,
        "top_entropy_quantile": 0.5,
        "scale_rewards": "none",
    },
    "dapo, windows across generations": {
        "loss_type": "dapo",
        "gradient_accumulation_steps": 3,
        "steps_per_generation": 2,
    },
}


def last_digit_matters(completion_ids, **_):
    return [float(sum(ids)) % 5 for ids in completion_ids]


def recording(cls):
    """Return `cls` with a `_compute_loss` that also keeps what came in and what went out."""

    class Recording(cls):
        records = ()

        def _get_per_token_logps_and_entropies(self, model, *args, **kwargs):
            result = super()._get_per_token_logps_and_entropies(model, *args, **kwargs)
            self._last = (model, args, result)
            return result

        def _compute_loss(self, model, inputs):
            loss = super()._compute_loss(model, inputs)
            forward, arguments, (logp, entropy, _) = self._last
            record = {k: inputs.get(k) for k in ("completion_mask", "completion_ids", "advantages")}
            record |= {k: inputs.get(k) for k in ("old_per_token_logps", "ref_per_token_logps", "num_items_in_batch")}
            record |= {"logp": logp.detach(), "entropy": entropy.detach(), "loss": float(loss.detach())}
            record |= {"micro_batches": self.current_gradient_accumulation_steps, "step": self.state.global_step}
            record["temperature_logp"] = tempered(forward, arguments, self.temperature)
            self.records = (*self.records, record)
            return loss

    return Recording


def tempered(model, arguments, temperature):
    """Return the log-probabilities that the trainer's forward pass should have given, from the model's logits."""
    import torch

    ids, attention, keep = arguments[:3]
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=attention).logits[:, -keep - 1 : -1].double()
    logp = torch.log_softmax(logits / temperature, dim=-1)
    return logp.gather(2, ids[:, -keep:, None])[..., 0]


@pytest.mark.parametrize("name", SETTINGS)
def test_whole_steps_of_a_real_run(folder, tmp_path, name):
    from trl import GRPOTrainer

    settings = SETTINGS[name]
    trainer = tiny_trainer.trainer(folder, [last_digit_matters], cls=recording(GRPOTrainer), max_steps=3, **settings)
    logging.getLogger("trl").setLevel(logging.ERROR)
    trainer.train()
    objective = objective_of(trainer)
    spread, statistics = 0.0, {}
    for record in trainer.records:
        batch = batch_of(record, trainer)
        terms = loss_terms(batch, objective)
        assert float(terms.loss) == pytest.approx(record["loss"], rel=2e-5, abs=1e-6)
        np.testing.assert_allclose(
            to_numpy(record["logp"])[batch.mask], to_numpy(record["temperature_logp"])[batch.mask], atol=2e-5
        )
        spread = max(spread, float(np.abs(terms.log_ratio).max()))
        statistics.setdefault(record["step"], []).append(batch_statistics(batch, terms, objective))
    assert spread > 1e-4, "the run must have been off-policy at some point"
    check_logs(trainer, statistics)


def objective_of(trainer):
    arguments = trainer.args
    objective = get_recipe(f"trl_{arguments.loss_type}").with_constant(arguments.max_completion_length)
    return objective.replace(
        ratio_level=arguments.importance_sampling_level,
        epsilon_low=arguments.epsilon,
        epsilon_high=arguments.epsilon_high or arguments.epsilon,
        beta=arguments.beta,
        top_entropy_quantile=arguments.top_entropy_quantile,
    )


def batch_of(record, trainer):
    arrays = {k: to_numpy(v).astype(float) for k, v in record.items() if hasattr(v, "shape")}
    old = arrays.get("old_per_token_logps", arrays["logp"])
    return GroupBatch(
        logp=arrays["logp"],
        old_logp=old,
        ref_logp=arrays.get("ref_per_token_logps"),
        mask=arrays["completion_mask"] > 0,
        advantages=arrays["advantages"],
        entropy=arrays["entropy"],
        accounting=Accounting(
            tokens=int(arrays["num_items_in_batch"]),
            micro_batches=record["micro_batches"],
            generation_steps=trainer.args.steps_per_generation,
        ),
    )


def check_logs(trainer, statistics):
    """TRL logs the plain mean over a step's micro-batches, and the sum of their losses."""
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(logs) == len(statistics) == 3
    for entry, (step, rows) in zip(logs, sorted(statistics.items()), strict=True):
        losses = [record["loss"] for record in trainer.records if record["step"] == step]
        assert entry["loss"] == pytest.approx(sum(losses), rel=1e-5, abs=1e-6)
        for key in ("clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean", "entropy", "kl"):
            if key in entry:
                assert np.mean([row[key] for row in rows]) == pytest.approx(entry[key], rel=2e-5, abs=1e-6), key
        json.dumps(entry)


def test_logged_lengths(folder):
    from trl import GRPOTrainer

    trainer = tiny_trainer.trainer(folder, [last_digit_matters], cls=recording(GRPOTrainer), max_steps=1)
    trainer.train()
    (record,) = trainer.records
    mask, ids = to_numpy(record["completion_mask"]), to_numpy(record["completion_ids"])
    lengths = mask.sum(axis=1)
    last = ids[np.arange(len(ids)), lengths - 1]
    truncated = last != trainer.processing_class.eos_token_id
    entry = trainer.state.log_history[0]
    for name, value in length_statistics(lengths, truncated).items():
        assert value == pytest.approx(entry[name], rel=1e-6), name


class TestRlooAdvantages:
    def test_leave_one_out_among_the_scored(self, folder):
        from trl import RLOOConfig, RLOOTrainer

        table = Table(1)
        trainer = tiny_trainer.trainer(
            folder, table.functions, cls=RLOOTrainer, config=RLOOConfig, steps_per_generation=2, beta=0.0
        )
        for name, rewards in ONE.items():
            table.values = np.array(rewards, dtype=float).reshape(-1, 1)
            rows = [{"prompt": f"{p}+1="} for p in range(PROMPTS) for _ in range(G)]
            theirs = to_numpy(trainer._generate_and_score_completions(rows)["advantages"]).reshape(PROMPTS, G)
            ours = multi_reward_advantages(table.values.reshape(PROMPTS, G, 1), get_recipe("trl_rloo").advantage)
            np.testing.assert_allclose(ours.advantages, theirs, rtol=1e-5, atol=1e-5, err_msg=name)
