"""How long the default run takes to 90 % greedy accuracy on held-out prompts, at full speed."""

import statistics

from grpo_core.live.config import RunConfig
from grpo_core.live.trainer import train

GOAL = 0.9


def report(*, seeds: int) -> None:
    print("\nDefault run at full speed, to 90 % held-out greedy accuracy (100 prompts, looked at every 5 steps)")
    found = [first_time(seed) for seed in range(seeds)]
    for seed, (step, training, wall, ninety) in enumerate(found):
        print(
            f"  seed {seed}: step {step}, {training:.2f} s of training, {wall:.2f} s with the evaluations; "
            f"sampled reward 0.9 (mean of 5 steps) at step {ninety}"
        )
    print(f"  mean: {statistics.fmean(t for _, t, _, _ in found):.2f} s of training")


def first_time(seed: int) -> tuple[int, float, float, int | None]:
    """Step, seconds of training and of the clock at the goal, and the step of a sampled reward of 0.9."""
    goal, training, rewards, ninety = None, 0.0, [], None
    for event in train(RunConfig(seed=seed, pace=None)):
        if event["event"] == "step":
            training = event["train_seconds"]
            rewards.append(event["reward"])
            if ninety is None and len(rewards) >= 5 and statistics.fmean(rewards[-5:]) >= 0.9:
                ninety = event["step"]
        elif event["event"] == "eval" and goal is None and event["accuracy"] >= GOAL:
            goal = (event["step"], training, event["seconds"])
    if goal is None:
        raise SystemExit(f"seed {seed} did not reach {GOAL:.0%}")
    return (*goal, ninety)
