"""The update: what is left out of the forward pass changes nothing, and the ratio starts at exactly 1."""

import pytest
import torch

from grpo_core import Objective, get_recipe, loss_terms
from grpo_core.live.config import RunConfig
from grpo_core.live.engines import make_engine
from grpo_core.live.model import load_policy
from grpo_core.live.trainer import advantage_spec, objective_of
from grpo_core.live.update import (
    DivergedError,
    Optimizer,
    UpdateInputs,
    informative_groups,
    policy_batch,
    update,
)

SETTINGS = {"inner_epochs": 1, "learning_rate": 1e-3, "max_grad_norm": 1.0, "temperature": 1.0}
RECIPES = ("trl_grpo", "trl_dapo", "dr_grpo_paper", "gspo_paper", "rloo_paper", "trl_cispo", "trl_sapo", "trl_gmpo")


@pytest.fixture
def some_advantages():
    """Advantages of six groups of five, of which three have none."""
    advantages = torch.zeros(6, 5)
    advantages[1] = torch.tensor([0.8, -0.2, -0.2, -0.2, -0.2])
    advantages[3] = torch.tensor([0.0, 0.5, -0.5, 0.0, 0.0])
    advantages[4] = torch.tensor([0.2, 0.2, 0.2, 0.2, -0.8])
    return advantages.flatten()


def loss_and_gradient(policy, rollout, inputs, objective, kept):
    engine = make_engine(policy)
    policy.model.zero_grad()
    plan = engine.plan(rollout.prompts.select(kept), rollout.completions.groups(kept))
    batch = policy_batch(engine, rollout, inputs, kept=kept, plan=plan, old_logp=None, temperature=1.0)
    terms = loss_terms(batch, objective)
    terms.loss.backward()
    return terms.loss.item(), torch.cat([p.grad.flatten() for p in policy.model.parameters()])


@pytest.mark.parametrize("name", RECIPES)
def test_groups_without_advantage_can_be_left_out(policy, prompts, draw, some_advantages, name):
    rollout, inputs = draw(prompts), UpdateInputs(some_advantages)
    objective = get_recipe(name).with_constant(13).replace(beta=0.0)
    kept = informative_groups(some_advantages, 5, objective)
    assert kept.tolist() == [1, 3, 4]
    loss, gradient = loss_and_gradient(policy, rollout, inputs, objective, kept)
    whole_loss, whole_gradient = loss_and_gradient(policy, rollout, inputs, objective, torch.arange(6))
    assert loss == pytest.approx(whole_loss, abs=1e-7)
    assert gradient.abs().max() > 1e-4
    torch.testing.assert_close(gradient, whole_gradient, atol=1e-7, rtol=1e-4)


@pytest.mark.parametrize(
    "objective",
    [
        Objective(beta=0.1),
        Objective(entropy_coefficient=0.1),
        get_recipe("verl_dro").objective,
        get_recipe("kl_cov_paper").objective,
        get_recipe("verl_clip_cov").objective,
    ],
    ids=lambda objective: objective.surrogate + str(objective.beta),
)
def test_nothing_is_left_out_where_more_than_the_advantage_pulls(some_advantages, objective):
    assert informative_groups(some_advantages, 5, objective).tolist() == list(range(6))


def test_the_ratio_is_exactly_one_at_one_inner_epoch(policy, prompts, draw, some_advantages):
    engine, rollout = make_engine(policy), draw(prompts)
    objective = Objective(epsilon_low=0.0, epsilon_high=0.0)
    found = update(
        engine, Optimizer(policy.model, learning_rate=1e-3), rollout, UpdateInputs(some_advantages), objective,
        **SETTINGS,
    )  # fmt: skip
    assert found["clip_ratio/region_mean"] == found["kl_old"] == found["saturated_mean"] == 0.0
    assert found["grad_norm"] > 0


def test_more_inner_epochs_move_the_ratio_away_from_one(policy, prompts, draw, some_advantages):
    engine, rollout = make_engine(policy), draw(prompts)
    found = update(
        engine, Optimizer(policy.model, learning_rate=1e-3), rollout, UpdateInputs(some_advantages), Objective(),
        **{**SETTINGS, "inner_epochs": 6},
    )  # fmt: skip
    assert found["clip_ratio/high_mean"] > 0
    assert found["clip_ratio/low_mean"] > 0
    assert found["kl_old"] > 0


def test_the_old_log_probabilities_are_those_of_sampling_and_carry_no_gradient(policy, prompts, draw, some_advantages):
    rollout, everything = draw(prompts), torch.arange(6)
    engine = make_engine(policy)
    plan = engine.plan(rollout.prompts, rollout.completions)
    batch = policy_batch(
        engine, rollout, UpdateInputs(some_advantages), kept=everything, plan=plan, old_logp=None, temperature=1.0
    )
    assert batch.logp.requires_grad
    assert not batch.old_logp.requires_grad
    torch.testing.assert_close(batch.old_logp, rollout.logp, atol=1e-5, rtol=0)


def test_a_batch_without_signal_moves_the_weights_by_momentum_only(policy, prompts, draw, some_advantages):
    engine, rollout = make_engine(policy), draw(prompts)
    optimizer, nothing = Optimizer(policy.model, learning_rate=1e-3), UpdateInputs(torch.zeros(30))
    start = optimizer.weights.detach().clone()
    found = update(engine, optimizer, rollout, nothing, Objective(), **SETTINGS)
    assert found["loss"] == found["grad_norm"] == 0.0
    assert torch.equal(optimizer.weights.detach(), start)
    update(engine, optimizer, rollout, UpdateInputs(some_advantages), Objective(), **SETTINGS)
    moved = optimizer.weights.detach().clone()
    update(engine, optimizer, rollout, nothing, Objective(), **SETTINGS)
    assert not torch.equal(optimizer.weights.detach(), moved)


def test_a_loss_that_is_not_finite_leaves_the_weights_alone(policy, prompts, draw):
    optimizer = Optimizer(policy.model, learning_rate=1e-3)
    start = optimizer.weights.detach().clone()
    inputs = UpdateInputs(torch.full((30,), float("nan")))
    with pytest.raises(DivergedError, match="the loss is nan"):
        update(make_engine(policy), optimizer, draw(prompts), inputs, Objective(), **SETTINGS)
    optimizer.gradient.fill_(float("inf"))
    with pytest.raises(DivergedError, match="norm is inf"):
        optimizer.step(learning_rate=1e-3, max_norm=1.0)
    assert torch.equal(optimizer.weights.detach(), start)


def test_one_vector_of_weights_is_stepped_as_torch_steps_them_apart(policy):
    other = load_policy("shell_game", "cpu").model
    adam = torch.optim.AdamW(other.parameters(), lr=2e-3, betas=(0.9, 0.99), weight_decay=0.0)
    optimizer = Optimizer(policy.model, learning_rate=1e-3)
    for scale in (1e-4, 1.0, 1e-2):  # below and above the length at which the gradient is cut
        optimizer.gradient.normal_(generator=torch.Generator().manual_seed(1)).mul_(scale)
        for mine, theirs in zip(policy.model.parameters(), other.parameters(), strict=True):
            theirs.grad = mine.grad.clone()
        norm = torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)
        adam.step()
        assert optimizer.step(learning_rate=2e-3, max_norm=1.0) == pytest.approx(norm.item(), rel=1e-5)
    for name, parameter in policy.model.named_parameters():
        torch.testing.assert_close(parameter, other.get_parameter(name), atol=1e-6, rtol=1e-5)
    assert policy.model.lm_head.weight.data_ptr() == policy.model.transformer.wte.weight.data_ptr()


def test_the_run_decides_beta_clip_range_length_and_scaling():
    objective = objective_of(RunConfig(beta=0.3, epsilon_low=0.1, epsilon_high=0.4, max_new_tokens=9))
    assert (objective.beta, objective.epsilon_low, objective.epsilon_high) == (0.3, 0.1, 0.4)
    assert (objective.aggregation, objective.constant) == ("constant", 9.0)
    assert advantage_spec(RunConfig()).scale == "none"
    assert advantage_spec(RunConfig(scale_rewards="group")).scale == "group"
    assert advantage_spec(RunConfig(recipe="trl_dapo")).scale == "group"
