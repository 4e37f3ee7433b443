"""Every surrogate as a function of the ratio: against autograd, against numbers by hand, NumPy and torch alike."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from grpo_core import RECIPES, SURROGATES, Objective
from grpo_core.surrogate_curves import ORDINARY, one_token_inputs, surrogate_curve, surrogate_options

RATIOS = np.array([0.05, 0.31, 0.77, 0.93, 1.0, 1.13, 1.31, 2.7, 3.1])
OBJECTIVES = {name: recipe.objective for name, recipe in RECIPES.items()}


def at(name, ratio, advantage=1.0, old_logp=-1.0, **options):
    one = np.array([float(ratio)])
    return surrogate_curve(one, advantage * np.ones(1), old_logp * np.ones(1), Objective(surrogate=name, **options))


@pytest.mark.parametrize("advantage", [1.7, -0.6])
@pytest.mark.parametrize("name", SURROGATES)
def test_the_gradient_is_the_one_that_torch_takes(name, advantage):
    objective, n = Objective(surrogate=name), RATIOS.size
    found = surrogate_curve(RATIOS, np.full(n, advantage), np.full(n, -1.2), objective)
    log_ratio = torch.tensor(np.log(RATIOS), requires_grad=True)
    x = one_token_inputs(
        log_ratio, torch.tensor([advantage] * n, dtype=torch.float64), torch.tensor([-1.2] * n, dtype=torch.float64)
    )
    branch = objective.replace(surrogate=ORDINARY.get(name, name))
    value = SURROGATES[branch.surrogate].objective(x, **branch.surrogate_parameters())
    value.sum().backward()
    np.testing.assert_allclose(found.objective, value[:, 0].detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(found.gradient, log_ratio.grad.numpy(), rtol=1e-12, atol=1e-15)
    assert np.all(found.gradient[found.saturated] == 0)


@pytest.mark.parametrize("name", SURROGATES)
def test_numpy_and_torch_agree(name):
    own = RATIOS, np.full(RATIOS.size, -0.8), np.full(RATIOS.size, -1.3)
    for singled_out in (False, True):
        by_numpy = surrogate_curve(*own, Objective(surrogate=name), singled_out=singled_out)
        by_torch = surrogate_curve(*map(torch.tensor, own), Objective(surrogate=name), singled_out=singled_out)
        for field in ("objective", "gradient", "value_slope", "saturated"):
            np.testing.assert_allclose(getattr(by_torch, field).numpy(), getattr(by_numpy, field), atol=1e-9)


def test_cispo_is_differentiated_through_the_logarithm_alone():
    capped, free = at("cispo", 1.5, options={"weight_high": 0.2}), at("cispo", 0.1, options={"weight_high": 0.2})
    assert capped.objective[0] == pytest.approx(0.2 * (math.log(1.5) - 1.0))
    assert capped.gradient[0] == pytest.approx(0.2)
    assert capped.value_slope[0] == pytest.approx(0.2)  # at the cap the weight is a constant anyway
    assert free.gradient[0] == pytest.approx(0.1)
    assert free.value_slope[0] == pytest.approx(0.1 + 0.1 * (math.log(0.1) - 1.0), rel=1e-6)


def test_at_ratio_one_every_surrogate_pushes_by_the_advantage():
    for name in SURROGATES:
        assert at(name, 1.0, 1.7).gradient[0] == pytest.approx(1.7), name
    assert at("cispo", 1.0, 1.7, options={"weight_high": 0.2}).gradient[0] == pytest.approx(0.34)  # but TRL's CISPO


def test_some_surrogates_by_hand():
    assert at("clip", 1.25, epsilon_high=0.28).gradient[0] == pytest.approx(1.25)
    assert at("clip", 1.3, epsilon_high=0.28).gradient[0] == 0
    assert at("clip", 2.4, -1.0, delta=2.0).objective[0] == pytest.approx(-2.0)
    assert at("gmpo", 2.0).objective[0] == pytest.approx(math.exp(0.4))
    assert at("gmpo", 2.0, -1.0).gradient[0] == pytest.approx(-2.0)
    assert at("vespo", 2.0).gradient[0] == pytest.approx(math.exp(3.0) * 4.0 * math.exp(-6.0))
    assert at("dro", 2.0).gradient[0] == pytest.approx(1.0 - math.log(2.0))
    assert at("dppo_tv", 1.5, old_logp=math.log(0.3)).gradient[0] == pytest.approx(1.5)  # 0.45 - 0.3 is within 0.2
    assert at("dppo_tv", 1.5, old_logp=math.log(0.5)).gradient[0] == 0  # 0.75 - 0.5 is not


def test_the_branch_of_the_tokens_that_are_singled_out():
    own = np.array([1.1]), np.ones(1), -np.ones(1)
    for name in SURROGATES:
        plain, other = (surrogate_curve(*own, Objective(surrogate=name), singled_out=s) for s in (False, True))
        if name == "kl_cov":
            assert plain.objective[0] - other.objective[0] == pytest.approx(0.1 * math.log(1.1))
            assert plain.gradient[0] - other.gradient[0] == pytest.approx(0.1)
        elif name == "clip_cov":
            assert (plain.gradient[0], other.gradient[0]) == (pytest.approx(1.1), 0)
        else:
            assert plain.gradient[0] == other.gradient[0]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_nothing_but_a_stopped_gradient_parts_value_and_gradient(name):
    objective = OBJECTIVES[name]
    inside = np.array([0.9, 1.05])
    found = surrogate_curve(inside, np.ones(2), np.full(2, -1.2), objective.replace(epsilon_low=0.2, epsilon_high=0.2))
    stopped = objective.surrogate in ("cispo", "vespo", "dppo_tv", "dppo_kl")
    assert np.allclose(found.gradient, found.value_slope, rtol=1e-5) != stopped or name == "trl_cispo"


@pytest.mark.parametrize("ratio", [0.0, -1.0, float("nan")])
def test_a_ratio_that_is_not_positive_is_refused(ratio):
    with pytest.raises(ValueError, match="ratio must be positive"):
        at("clip", ratio)


def test_options_are_those_that_the_surrogate_reads_and_that_differ():
    trl, wanted = OBJECTIVES["trl_cispo"], {"weight_low": 0.0, "weight_high": 5.0, "tau_positive": 3.0, "delta": 2.0}
    assert surrogate_options(trl, wanted) == {"weight_low": 0.0, "weight_high": 5.0}
    assert surrogate_options(trl, {"weight_high": 0.2}) == trl.options
    assert surrogate_options(OBJECTIVES["trl_sapo"], {"tau_positive": 1.0}) == {}
    assert surrogate_options(Objective(), wanted) == {}
    with pytest.raises(ValueError, match="weight_high"):
        surrogate_options(trl, {"weight_high": math.nan})
