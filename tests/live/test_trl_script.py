"""The TRL script: TRL itself accepts its arguments, it really trains, and it says what TRL does otherwise."""

import ast
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from grpo_core import RECIPES
from grpo_core.live.config import RunConfig, objective_of
from grpo_core.live.trl_script import differences, grpo_arguments, trl_script

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def grpo_config():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of TRL and what it imports
        from trl import GRPOConfig

    return GRPOConfig


@pytest.mark.parametrize("recipe", RECIPES)
def test_trl_accepts_the_arguments_of_every_recipe(grpo_config, recipe, tmp_path):
    config = RunConfig.for_recipe(recipe, device="cpu", refresh_every=5, group_size=4)
    ast.parse(trl_script(config))
    arguments = grpo_arguments(config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        accepted = grpo_config(output_dir=str(tmp_path), **arguments)
    assert accepted.num_generations == 4
    assert accepted.generation_batch_size == config.rows
    for name, value in arguments.items() - {("report_to", "none")}:
        assert getattr(accepted, name) == value


@pytest.mark.parametrize(
    "recipe", ["trl_grpo", "trl_bnpo", "trl_dr_grpo", "trl_dapo", "trl_cispo", "trl_sapo", "trl_luspo"]
)
def test_trls_own_recipes_come_back_as_they_are_called(recipe):
    config = RunConfig.for_recipe(recipe)
    arguments = grpo_arguments(config)
    assert arguments["loss_type"] == recipe.removeprefix("trl_")
    assert arguments["use_bias_correction_kl"] is True
    assert arguments["scale_rewards"] == "group"
    assert differences(config) == []


def test_the_settings_of_a_run_are_the_scripts():
    config = RunConfig.for_recipe(
        "trl_gspo", learning_rate=3e-4, beta=0.1, inner_epochs=3, scale_rewards="batch", top_p=0.9
    )
    found = grpo_arguments(config)
    objective = objective_of(config)
    assert found["importance_sampling_level"] == "sequence"
    assert (found["epsilon"], found["epsilon_high"]) == (objective.epsilon_low, objective.epsilon_high) == (3e-4, 4e-4)
    assert (found["learning_rate"], found["beta"], found["num_iterations"], found["top_p"]) == (3e-4, 0.1, 3, 0.9)
    assert found["scale_rewards"] == "batch"
    assert "sync_ref_model" not in found


def test_what_trl_does_otherwise_is_said():
    told = differences(RunConfig.for_recipe("gpg_paper", refills=2, verifier_failures=0.1))
    assert any("surrogate is 'policy_gradient'" in line for line in told)
    assert any("advantages are 'nonzero_scaled'" in line for line in told)
    assert "refills=2 is left out" in told
    script = trl_script(RunConfig.for_recipe("gpg_paper", refills=2), title="my\nrun")
    assert all(f"# - {line}\n" in script for line in differences(RunConfig.for_recipe("gpg_paper", refills=2)))
    assert script.startswith("# The settings of my run, for")


def test_the_script_trains(tmp_path):
    config = RunConfig.for_recipe(
        "dr_grpo_paper", steps=2, group_size=4, prompts_per_step=4, learning_rate=1e-3, beta=0.04, device="cpu"
    )
    (tmp_path / "script.py").write_text(trl_script(config, title="a test"))
    done = subprocess.run(
        [sys.executable, "script.py"], capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [ast.literal_eval(line) for line in done.stdout.splitlines() if line.startswith("{'step'")]
    assert [row["step"] for row in rows if "reward" in row] == [1, 2]
    assert all(0 <= row["reward"] <= 1 for row in rows if "reward" in row)
    assert rows[0]["kl"] == pytest.approx(0, abs=1e-6)
