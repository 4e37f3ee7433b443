import numpy as np
import pytest

from grpo_core import categorical_kl, kl_optimal_policy
from grpo_core.kl_refresh import penalised_paths
from tests.support import to_numpy, torch_gradient

START, REWARDS = [0.6, 0.3, 0.1], [0.0, 0.5, 1.0]


def paths(runs, **more):
    return penalised_paths(START, REWARDS, runs=runs, **{"learning_rate": 0.5, "steps": 120, **more})


def test_every_step_is_autograds(backend):
    import torch

    beta, every, rate = 0.3, 2, 0.7
    found = penalised_paths(
        backend.array(START), backend.array(REWARDS), runs=[(beta, every)], learning_rate=rate, steps=5
    )
    logits, reference = np.log(START), torch.tensor(START, dtype=torch.float64)
    rewards = torch.tensor(REWARDS, dtype=torch.float64)
    for step in range(6):
        policy = torch.tensor(logits).softmax(-1)
        if step and step % every == 0:
            reference = policy
        backend.check(found.policy[0, step, :], policy.numpy())
        backend.check(found.reference[0, step, :], reference.numpy())

        def objective(x, q=reference):
            p = x.softmax(-1)
            return (p * rewards).sum() - beta * categorical_kl(p, q)

        logits = logits + rate * torch_gradient(objective, logits)


def test_without_a_refresh_it_ends_at_the_optimal_policy():
    found = paths([(0.5, None), (0.3, None)], steps=3000)
    for run, beta in enumerate((0.5, 0.3)):
        best = kl_optimal_policy(np.array(START), np.array(REWARDS), beta=beta)
        np.testing.assert_allclose(found.policy[run, -1], best, atol=1e-9)
        assert found.reward[run, -1] == pytest.approx(best @ REWARDS)
        assert found.from_start[run, -1] == pytest.approx(float(categorical_kl(best, np.array(START))), rel=1e-6)


def test_converged_rounds_are_one_run_with_a_smaller_beta():
    found = paths([(0.6, 1000)], steps=2999)  # three rounds of 1000 steps, two refreshes between them
    best = kl_optimal_policy(np.array(START), np.array(REWARDS), beta=0.6 / 3)
    np.testing.assert_allclose(found.policy[0, -1], best, atol=1e-7)


def test_a_reference_refreshed_every_step_is_no_penalty():
    found = paths([(5.0, 1), (0.0, None)], learning_rate=0.1)
    np.testing.assert_allclose(found.policy[0], found.policy[1], rtol=1e-12)


def test_the_penalty_is_zero_at_a_refresh_and_grows_between():
    found = paths([(0.5, 30)])
    at = np.arange(0, 121, 30)
    np.testing.assert_allclose(found.penalty[0, at], 0.0, atol=1e-15)
    assert np.all(found.penalty[0, at[1:] - 1] > 0.01)
    assert np.all(np.diff(found.from_start[0]) > 0)  # away from the start all the time


def test_runs_do_not_touch_each_other():
    together = paths([(0.5, None), (0.5, 30), (0.1, 7)])
    for i, run in enumerate([(0.5, None), (0.5, 30), (0.1, 7)]):
        np.testing.assert_allclose(together.policy[i], paths([run]).policy[0], rtol=1e-12)


def test_steps_far_too_long_stay_numbers(backend):
    found = penalised_paths(
        backend.array(START), backend.array([0.0, 50.0, 100.0]), runs=[(0.0, None)], learning_rate=10.0, steps=20
    )
    assert np.all(np.isfinite(to_numpy(found.policy)))
    np.testing.assert_allclose(to_numpy(found.policy)[0, -1].sum(), 1.0, rtol=1e-6)
    assert np.all(np.isfinite(to_numpy(found.reward)))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: penalised_paths([1.0, 0.0], [1, 0], runs=[(1, None)], learning_rate=1, steps=1), "start must be one"),
        (lambda: penalised_paths([0.5, 0.5], [1.0], runs=[(1, None)], learning_rate=1, steps=1), "rewards must have"),
        (lambda: paths([(-1.0, None)]), "beta must be finite and at least 0"),
        (lambda: paths([(1.0, 0)]), "refresh_every must be a whole number of at least 1"),
        (lambda: paths([(1.0, None)], steps=10_001), "steps must be at most 10000"),
        (lambda: paths([(1.0, None)], learning_rate=0.0), "learning_rate must be finite and above 0"),
    ],
)
def test_bad_input_is_named(call, says):
    with pytest.raises(ValueError, match=says):
        call()
