"""OpenRLHF 0.11.2: its own policy loss, KL estimates and advantages against ours.

Recorded like verl's (see test_verl): OpenRLHF needs DeepSpeed and Ray to be imported.
"""

import pytest

from grpo_core import RECIPES, GroupBatch, batch_statistics, get_recipe, loss_terms
from tests.conformance.foreign import package_folder
from tests.conformance.record import RECORDERS
from tests.conformance.recorded_cases import (
    OPENRLHF,
    advantage_difference,
    kl_differences,
    loss_differences,
    make_batch,
    openrlhf_objective,
)

# OpenRLHF adds 1e-8 to a number of tokens before dividing by it, and takes KL and whitening in float32.
TOLERANCE = 1e-7
FLOAT32 = 1e-6


def label(record):
    options = ",".join(f"{k}={v}" for k, v in record["options"].items()) or "defaults"
    return f"{options}-{'step' if record['step'] else 'alone'}-{record['batch']}"


@pytest.mark.parametrize("record", OPENRLHF["losses"], ids=label)
def test_loss(record):
    value, gradient = loss_differences(OPENRLHF, record)
    assert value < TOLERANCE
    assert gradient < TOLERANCE


@pytest.mark.parametrize("record", OPENRLHF["kl"], ids=lambda r: f"{r['kind']}-{r['batch']}")
def test_kl_estimate(record):
    value, gradient = kl_differences(OPENRLHF, record)
    assert value < FLOAT32
    assert gradient < FLOAT32


@pytest.mark.parametrize("record", OPENRLHF["advantages"], ids=lambda r: f"{r['estimator']}-{r['batch']}")
def test_advantages(record):
    assert advantage_difference(OPENRLHF, record) < FLOAT32


@pytest.mark.parametrize("record", OPENRLHF["losses"], ids=label)
def test_clip_fraction(record):
    """Every token counts, at sequence level as well; the dual clip is not in it."""
    objective = openrlhf_objective(record)
    batch = make_batch(OPENRLHF["batches"][record["batch"]])
    terms = loss_terms(batch, objective.replace(delta=None))
    if objective.ratio_level == "token":
        statistics = batch_statistics(batch, terms, objective)
        assert statistics["clip_ratio/region_mean"] == pytest.approx(record["clip_ratio"], abs=1e-7)
    share = terms.saturated.sum() / batch.mask.sum()
    assert share == pytest.approx(record["clip_ratio"], abs=1e-7)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
@pytest.mark.parametrize("gap", [-900.0, -15.0, 15.0, 900.0])
def test_far_from_the_reference_value_and_gradient_stay_finite(kind, gap):
    import torch

    objective = get_recipe("openrlhf_group_norm").objective.replace(beta=1.0, kl_estimator=kind)
    logp = torch.tensor([[-1.0]], requires_grad=True)
    mask, zero = torch.tensor([[True]]), torch.zeros(1)
    loss = loss_terms(GroupBatch(logp, logp.detach(), logp.detach() + gap, mask, zero), objective).loss
    loss.backward()
    assert abs(float(loss.detach())) == 10.0
    assert float(logp.grad) == 0.0


def test_every_recipe_of_openrlhf_is_compared():
    compared = {record["estimator"] for record in OPENRLHF["advantages"]}
    assert {name.removeprefix("openrlhf_") for name in RECIPES if name.startswith("openrlhf_")} <= compared


@pytest.mark.skipif(
    package_folder("openrlhf") is None, reason="OpenRLHF is not here: its recorded numbers are compared"
)
def test_the_recording_is_what_openrlhf_says():
    from tests.conformance.same import assert_same

    assert_same(RECORDERS["openrlhf"](package_folder("openrlhf")), OPENRLHF)
