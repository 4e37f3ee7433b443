"""verl 0.9.1: its own losses, KL penalties and advantages against ours.

verl cannot be installed beside a test suite (Ray, vLLM), so that its numbers are recorded: record.py runs verl's
released functions and writes recorded/verl.json. Where the package is at hand, a test runs them again.
"""

import numpy as np
import pytest

from grpo_core import RECIPES, batch_statistics, gae, loss_terms
from tests.conformance.foreign import package_folder
from tests.conformance.record import RECORDERS, VERL_ESTIMATORS, VERL_SETTINGS
from tests.conformance.recorded_cases import (
    VERL,
    advantage_difference,
    kl_differences,
    loss_differences,
    make_batch,
    verl_objective,
)

# verl adds 1e-8 to a number of tokens before dividing by it, and takes GDPO's rewards in float32.
TOLERANCE = 1e-7


def label(record):
    options = ",".join(f"{k}={v}" for k, v in record["options"].items()) or "defaults"
    around = "step" if record["step"] else "alone"
    return f"{record['mode']}-{record['aggregation']}-{options}-{around}-{record['batch']}"


@pytest.mark.parametrize("record", VERL["losses"], ids=label)
def test_loss(record):
    value, gradient = loss_differences(VERL, record)
    assert value < TOLERANCE
    assert gradient < TOLERANCE


@pytest.mark.parametrize("record", VERL["kl"], ids=lambda r: f"{r['kind']}-{r['batch']}")
def test_kl_penalty(record):
    value, gradient = kl_differences(VERL, record)
    assert value < TOLERANCE
    assert gradient < TOLERANCE


@pytest.mark.parametrize("record", VERL["advantages"], ids=lambda r: f"{r['estimator']}-{r['batch']}")
def test_advantages(record):
    assert advantage_difference(VERL, record) < TOLERANCE


@pytest.mark.parametrize("record", VERL["gae"])
def test_gae(record):
    ours = gae(record["rewards"], [*record["values"], 0.0], gamma=record["gamma"], lam=record["lam"])
    np.testing.assert_allclose(ours, record["advantages"], rtol=1e-12)


@pytest.mark.parametrize("record", [r for r in VERL["losses"] if r["mode"] == "vanilla"], ids=label)
def test_clip_fractions(record):
    """verl counts the clip and, apart from it, the terms that the dual clip holds."""
    objective = verl_objective(record)
    batch = make_batch(VERL["batches"][record["batch"]])
    statistics = batch_statistics(batch, loss_terms(batch, objective), objective)
    logged = record["metrics"]
    assert statistics["clip_ratio/region_mean"] == pytest.approx(logged["actor/pg_clipfrac"], abs=1e-7)
    held = logged["actor/pg_clipfrac"] + logged["actor/pg_clipfrac_lower"]
    assert statistics["saturated_mean"] == pytest.approx(held, abs=1e-7)


def test_something_was_clipped_on_each_side():
    logged = [r["metrics"] for r in VERL["losses"] if r["mode"] == "vanilla" and r["options"]]
    assert max(m["actor/pg_clipfrac"] for m in logged) > 0
    assert max(m["actor/pg_clipfrac_lower"] for m in logged) > 0


def test_every_recipe_of_verl_is_compared():
    compared = {r["mode"] for r in VERL["losses"]} | {r["estimator"] for r in VERL["advantages"]}
    assert set(VERL_SETTINGS) <= compared
    assert set(VERL_ESTIMATORS) <= compared
    assert {name.removeprefix("verl_") for name in RECIPES if name.startswith("verl_")} <= compared


@pytest.mark.skipif(package_folder("verl") is None, reason="verl is not here: its recorded numbers are compared")
def test_the_recording_is_what_verl_says():
    from tests.conformance.same import assert_same

    assert_same(RECORDERS["verl"](package_folder("verl")), VERL)
