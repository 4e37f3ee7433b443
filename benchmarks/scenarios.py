"""Every scenario of the live lab over several seeds: a table of what was measured and whether the effect is there.

python -m benchmarks.scenarios                       all scenarios, seeds 0 1 2
python -m benchmarks.scenarios reward_hacking --seeds 0 1 2 3 4
python -m benchmarks.scenarios --write               also keep the numbers for the page
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping, Sequence

from grpo_core.live.config import RunConfig
from grpo_core.live.scenarios import EFFECTS, SCENARIOS, Scenario, check, effects, measure

SEEDS = (0, 1, 2)
Measured = dict[str, dict[str, dict[str, list[float]]]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scenarios", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", default=list(SCENARIOS), help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--write", action="store_true", help=f"keep the numbers in {EFFECTS.name}")
    options = parser.parse_args()
    runner, measured = Runner(), {}
    for name in options.names:
        measured[name] = report(SCENARIOS[name], options.seeds, runner)
        if options.write:
            write(measured, options.seeds)


class Runner:
    """Trains a config once, however many scenarios ask for it."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, float]] = {}

    def measures(self, config: RunConfig) -> dict[str, float]:
        from grpo_core.live.trainer import train

        key = json.dumps(config.to_dict())
        if key not in self._known:
            light = [{k: v for k, v in event.items() if k != "groups"} for event in train(config)]
            self._known[key] = measure(light)
        return self._known[key]


def report(scenario: Scenario, seeds: Sequence[int], runner: Runner) -> dict[str, dict[str, list[float]]]:
    """Run a scenario and print its table; measures by variant, one value for each seed."""
    began = time.perf_counter()
    found = [
        {name: runner.measures(config) for name, config in scenario.configs(seed=seed, pace=None, probe=True).items()}
        for seed in seeds
    ]
    shown = dict.fromkeys(expected.measure for expected in scenario.expected)
    print(f"\n{scenario.name}  ({time.perf_counter() - began:.0f} s; seeds {', '.join(map(str, seeds))})")
    for variant in scenario.variants:
        there = [name for name in shown if name in found[0][variant]]
        cells = [f"{name} {_values([run[variant][name] for run in found])}" for name in there]
        print(f"  {variant:18s} " + "   ".join(cells))
    for seed, run in zip(seeds, found, strict=True):
        for missed in check(scenario, run):
            print(f"  NOT SEEN with seed {seed}: {missed}, but {missed.value(run):g}")
    return {
        variant: {name: [run[variant][name] for run in found] for name in sorted(found[0][variant])}
        for variant in scenario.variants
    }


def _values(values: Sequence[float]) -> str:
    return "/".join(f"{value:.4g}" if abs(value) < 10 else f"{value:.0f}" for value in values)


def write(measured: Measured, seeds: Sequence[int]) -> None:
    """Keep the numbers; scenarios that were not run keep theirs."""
    before = effects()["measured"] if EFFECTS.is_file() else {}
    kept = {name: before[name] for name in SCENARIOS if name in before} | measured
    data = {"seeds": list(seeds), "measured": {name: _plain(kept[name]) for name in SCENARIOS if name in kept}}
    EFFECTS.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def _plain(variants: Mapping[str, Mapping[str, Sequence[float | None]]]) -> dict[str, dict[str, list[float | None]]]:
    """Four significant digits; None for what was never reached."""
    return {
        variant: {
            name: [None if value is None or math.isinf(value) else float(f"{value:.4g}") for value in values]
            for name, values in found.items()
        }
        for variant, found in variants.items()
    }


if __name__ == "__main__":
    main()
