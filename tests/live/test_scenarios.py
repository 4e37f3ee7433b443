"""Every scenario shows its effect, on one seed; python -m benchmarks.scenarios does the same over several."""

import json
import math
from statistics import fmean

import pytest

from grpo_core.diagnosis import FOUND, diagnose
from grpo_core.live.config import RunConfig, objective_of
from grpo_core.live.groups import event_group
from grpo_core.live.scenarios import MEASURES, SCENARIOS, Expectation, check, effects, measure, scenario_numbers
from grpo_core.live.trainer import train

SEED = 0


@pytest.fixture(scope="session")
def trained():
    """Return a function that trains a config, once for all tests: light events, and the groups of the last step."""
    known = {}

    def trained(config):
        key = json.dumps(config.to_dict())
        if key not in known:
            events = list(train(config))
            last = [event for event in events if event["event"] == "step"][-1]["groups"]
            known[key] = [{k: v for k, v in event.items() if k != "groups"} for event in events], last
        return known[key]

    return trained


@pytest.fixture(params=SCENARIOS.values(), ids=SCENARIOS, scope="session")
def shown(request, trained):
    """A scenario with the runs of all its variants."""
    configs = request.param.configs(seed=SEED, pace=None)
    return request.param, {name: trained(config) for name, config in configs.items()}


def test_the_effect_appears(shown):
    scenario, runs = shown
    measured = {name: measure(events) for name, (events, _) in runs.items()}
    missed = [f"{expected}: {expected.value(measured):g}" for expected in check(scenario, measured)]
    assert missed == []


def test_the_diagnosis_says_so(shown):
    scenario, runs = shown
    for variant, names in scenario.findings.items():
        events, groups = runs[variant]
        settings = events[0]["config"]
        found = diagnose(events, [event_group(group) for group in groups], settings=settings)
        assert set(names) <= {finding.name for finding in found if finding.status == FOUND}, variant


def test_what_to_watch_is_measured(shown):
    scenario, runs = shown
    events, _ = list(runs.values())[-1]
    told = {name for event in events for name in event}
    assert set(scenario.watch) <= told


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_variants_differ_in_one_thing_and_expectations_name_what_is_there(scenario):
    assert len(scenario.differs_in) <= 1 or scenario.name == "averaging"
    configs = scenario.configs(seed=3, steps=7)
    assert all((config.seed, config.steps) == (3, 7) for config in configs.values())
    assert len({json.dumps(config.to_dict()) for config in configs.values()}) == len(configs)
    for expected in scenario.expected:
        assert expected.measure in MEASURES
        assert {expected.variant, expected.than or expected.variant} <= set(scenario.variants)
        assert expected.low > -math.inf or expected.high < math.inf
    assert set(scenario.findings) <= set(scenario.variants)


def test_the_variants_of_averaging_differ_in_the_aggregation_only():
    objectives = [objective_of(config) for config in SCENARIOS["averaging"].configs().values()]
    assert [objective.aggregation for objective in objectives] == ["constant", "token_mean", "sequence_mean"]
    # With one update on one batch "global" and "batch" are the same counts.
    alike = [objective.replace(aggregation="token_mean", constant=None, scope="batch") for objective in objectives]
    assert alike[0] == alike[1] == alike[2]


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_what_was_measured_over_several_seeds_shows_the_effect(scenario):
    kept = effects()
    assert len(kept["seeds"]) >= 3
    measured = kept["measured"][scenario.name]
    assert set(measured) == set(scenario.variants)
    for i in range(len(kept["seeds"])):
        run = {
            variant: {name: math.inf if values[i] is None else values[i] for name, values in found.items()}
            for variant, found in measured.items()
        }
        assert check(scenario, run) == []


def test_the_numbers_of_the_texts_are_means_over_the_seeds():
    kept = effects()["measured"]["shared_graph"]["shared"]
    numbers = scenario_numbers("shared_graph")
    assert numbers["shared__final_accuracy"] == pytest.approx(fmean(kept["final_accuracy"]))
    assert numbers["shared__steps_to_half"] == math.inf
    assert all(name.isidentifier() for name in numbers)


def test_no_scenario_is_left_over_in_what_was_measured():
    assert set(effects()["measured"]) == set(SCENARIOS)


# Measures and expectations by hand


def rows(**metrics):
    return [
        {"event": "step", **{k: v[i] for k, v in metrics.items()}} for i in range(len(next(iter(metrics.values()))))
    ]


def test_measures_by_hand():
    steps = rows(
        reward=[float(i) for i in range(20)],
        **{"rewards/accuracy/mean": [0.0] * 10 + [1.0] * 10},
        completion_tokens=[5] * 20,
        grad_norm=[1.0, 7.0] * 10,
    )
    evaluations = [
        {"event": "eval", "sampled_accuracy": value, "accuracy": 0.5, "pass_at_k": 0.75} for value in (0.2, 0.9, 0.4)
    ]
    found = measure([{"event": "start"}, *steps, *evaluations])
    assert found["final_reward"] == fmean(range(10, 20))
    assert found["start_reward"] == 1.0
    assert (found["start_accuracy"], found["best_accuracy"], found["final_accuracy"]) == (0.2, 0.9, 0.4)
    assert found["steps_to_half"] == 13  # the mean of steps 9 to 13 is the first to hold three ones
    assert found["steps_to_most"] == 14
    assert found["tokens_to_most"] == 14 * 5
    assert found["tokens"] == 100
    assert found["largest_gradient"] == 7.0
    assert "final_kl" not in found
    assert "groups_drawn" not in found


def test_what_is_never_reached_is_infinite():
    found = measure(rows(**{"rewards/accuracy/mean": [0.4] * 30}, completion_tokens=[5] * 30))
    assert found["steps_to_half"] == found["tokens_to_most"] == math.inf


def test_an_expectation_can_fail():
    measured = {"a": {"final_reward": 0.5}, "b": {"final_reward": 0.9}}
    assert Expectation("a", "final_reward", high=0.5).holds(measured)
    assert not Expectation("a", "final_reward", low=0.6).holds(measured)
    assert Expectation("b", "final_reward", low=0.3, than="a").holds(measured)
    assert not Expectation("a", "final_reward", low=0.3, than="b").holds(measured)
    never = {"a": {"steps_to_half": math.inf}, "b": {"steps_to_half": 20.0}}
    assert Expectation("a", "steps_to_half", low=5.0, than="b").holds(never)
    both = {"a": {"steps_to_half": math.inf}, "b": {"steps_to_half": math.inf}}
    assert not Expectation("a", "steps_to_half", low=5.0, than="b").holds(both)
    assert str(Expectation("a", "final_reward", low=0.3, than="b")) == (
        "final_reward of a minus that of b in [0.3, inf]"
    )


def test_a_scenario_is_an_ordinary_run():
    for scenario in SCENARIOS.values():
        for config in scenario.configs().values():
            assert RunConfig.from_dict(config.to_dict()) == config
