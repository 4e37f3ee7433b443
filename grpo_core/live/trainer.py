"""The trainer: an iterator of events that knows nothing of processes, databases or pages.

Events are plain data, one dictionary each, in this order: "start", "eval" at step 0, then "step" events with an
"eval" every so often and a "command" for each command as it takes effect, and a last "end".
"""

import math
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

from grpo_core import (
    GroupAdvantages,
    advantage_statistics,
    as_rewards,
    compute_advantages,
    group_kind,
    importance_ratio,
    kl_estimate,
    length_statistics,
    masked_mean,
    multi_reward_advantages,
    ratio_histogram,
    ratio_statistics,
    reward_statistics,
)
from grpo_core.advantages import KINDS
from grpo_core.live.checkpoints import Checkpoint, CheckpointError, Checkpoints
from grpo_core.live.commands import Command
from grpo_core.live.config import RunConfig, advantage_spec, objective_of, with_recipe
from grpo_core.live.draws import Draw, join_draws, with_none
from grpo_core.live.engines import Engine, Prompts, Reference, make_engine
from grpo_core.live.evaluate import evaluate
from grpo_core.live.faults import faulty_rewards
from grpo_core.live.memory import out_of_memory
from grpo_core.live.model import Policy, device_name, start_policy, use_threads
from grpo_core.live.pretrained import check_start
from grpo_core.live.reward_model import first_labels, reward_model_metrics, reward_model_of
from grpo_core.live.rollout import Rollout, encode, own_tokens, sample
from grpo_core.live.steps import Steps, padded, step_advantages, step_statistics, verify_steps
from grpo_core.live.task_files import task_of
from grpo_core.live.tasks import Problem, Score, Task
from grpo_core.live.update import DivergedError, Optimizer, UpdateInputs, update
from grpo_core.messages import Message, message_of

Event = dict[str, Any]
Commands = Callable[[], Iterable[Command]]
"""Called often; gives the commands that have arrived since the last call."""

POLL_SECONDS = 0.02
CHEAP_SECONDS = 0.2
"""A change of settings is kept at once in a checkpoint when the last one took no longer than this."""
THOROUGH_EVERY = 4
"""One evaluation in this many answers each prompt several times."""
PARTS = ("accuracy", "format")
"""The parts of a verifier's word that are recorded beside the reward."""


def train(
    config: RunConfig,
    commands: Commands | None = None,
    *,
    checkpoints: Checkpoints | None = None,
    begin: Checkpoint | None = None,
) -> Iterator[Event]:
    """Train as the config says and yield events; see the module's docstring and groups.py for their shapes.

    The same config gives the same events on one machine, times apart. A loss that is not finite ends the run with
    state "failed" and the reason; the update that gave it is not taken. Closing the iterator ends it.
    checkpoints: where to keep what is needed to go on. begin: go on from one of those; its settings then count,
    instead of "start" comes a command event "continued", and commands that wait are taken before anything else.
    """
    run = Run(config, commands or tuple) if begin is None else continued(begin, commands or tuple)
    yield from _opening(run) if begin is None else _going_on(run)
    keeper = _Keeper(run, checkpoints)
    try:
        yield from _steps(run, keeper)
    except (DivergedError, MemoryError, OSError, RuntimeError) as error:
        diverged = isinstance(error, DivergedError)
        if not diverged and not out_of_memory(error):
            raise
        reason = keeper.diverged_words(error) if diverged else _memory_words(run)
        cause = "diverged" if diverged else "out_of_memory"
        yield run.event("end", state="failed", reason=reason, cause=cause, **keeper.way_back())
        return
    yield from keeper.save()
    yield run.event("end", state="stopped" if run.stopped else "finished", reason="")


def _opening(run: "Run") -> Iterator[Event]:
    """What comes before the first step of a new run."""
    yield run.start_event()
    yield run.eval_event()
    yield from run.first_labels()


def _going_on(run: "Run") -> Iterator[Event]:
    """What comes before the next step of a run that goes on from a checkpoint."""
    yield run.event("command", name="continued", value={"step": run.step})
    yield from run.take()


def _steps(run: "Run", keeper: "_Keeper") -> Iterator[Event]:
    """Take steps until they are all taken or the run is stopped."""
    while run.step < run.config.steps:
        yield from keeper.obey()
        if run.stopped:
            return
        yield run.step_event()
        yield from run.refresh_event()
        yield from run.iteration_event()
        if run.step % run.config.eval_every == 0 or run.step == run.config.steps:
            yield run.eval_event()
        yield from keeper.after_step()


class _Keeper:
    """Keeps a run's checkpoints: every so often, at a pause, after a change, and at the end.

    A checkpoint that cannot be written is no reason to stop: a "notice" event says so, and training goes on.
    """

    def __init__(self, run: "Run", checkpoints: Checkpoints | None) -> None:
        self.run, self.checkpoints = run, checkpoints
        self._saved = run.events

    def obey(self) -> Iterator[Event]:
        """Let the run take its commands and wait; keep what it was told where that is cheap."""
        for event in self.run.obey():
            yield event
            changed = event["name"] in ("set", "refresh") and "refused" not in event
            if event["name"] == "pause" or (changed and self.checkpoints and self.checkpoints.seconds < CHEAP_SECONDS):
                yield from self.save()

    def after_step(self) -> Iterator[Event]:
        """Keep a checkpoint where it is due; while the run is paused, after every single step."""
        every = self.run.config.checkpoint_every
        if self.run.paused or (every and self.run.step % every == 0):
            yield from self.save()

    def save(self) -> Iterator[Event]:
        """Keep a checkpoint, unless nothing has happened since the last one."""
        if self.checkpoints is None or self.run.events == self._saved:
            return
        try:
            self.checkpoints.save(*self.run.snapshot())
            self._saved = self.run.events
        except OSError as error:
            step, reason = self.run.step, Message(error.strerror or str(error))
            text = Message("The checkpoint of step {step} could not be written: {error}", step=step, error=error)
            yield self.run.event("notice", name="checkpoint", reason=reason, text=text)
            self._saved = self.run.events

    def way_back(self) -> dict[str, Any]:
        """Name the step of the last good checkpoint, where there is one."""
        good = self.checkpoints.good() if self.checkpoints else None
        return {} if good is None else {"checkpoint": good.step}

    def diverged_words(self, error: Exception) -> Message:
        """Say what a loss that is no number means, and what helps."""
        step, rate = self.way_back().get("checkpoint"), self.run.config.learning_rate
        if step is None:
            advice = Message("Begin again with a learning rate below {rate:g}.", rate=rate)
        else:
            advice = Message(
                "Go on from the checkpoint of step {step} with a learning rate below {rate:g}.", step=step, rate=rate
            )
        return Message(
            "Step {step} cannot be taken: {error}. Everything up to step {last} is kept. {advice}",
            step=self.run.step + 1, error=error, last=self.run.step, advice=advice,
        )  # fmt: skip


def _memory_words(run: "Run") -> Message:
    """Say what to lower, with the values it has."""
    config = run.config
    return Message(
        "The device ran out of memory in step {step}. Lower one of prompts_per_step (now {prompts}), group_size "
        "(now {size}), max_new_tokens (now {tokens}): a step holds {rows} completions at once. Everything up to "
        "step {last} is kept.",
        step=run.step + 1, prompts=config.prompts_per_step, size=config.group_size, tokens=config.max_new_tokens,
        rows=config.rows, last=run.step,
    )  # fmt: skip


@dataclass(frozen=True)
class _Judged:
    """The groups that train, with the rewards (P, G) and the advantages that the update uses.

    Under process supervision: the steps of every completion and the advantages of every token, ragged. Those of
    a completion are then the means over its tokens.
    """

    draw: Draw
    rewards: np.ndarray
    advantages: GroupAdvantages
    steps: list[Steps] | None = None
    by_token: list[np.ndarray] | None = None

    @property
    def pulls(self) -> np.ndarray:
        """The advantages, in any order."""
        return self.advantages.advantages if self.by_token is None else np.concatenate(self.by_token)

    @property
    def kinds(self) -> list[str]:
        """The kinds of the groups, by the rewards that train."""
        if self.rewards is self.draw.rewards:
            return self.draw.kinds
        return [group_kind(with_none(row)) for row in self.rewards]


@dataclass(frozen=True)
class _Probe:
    """Log-probabilities (B, T) after the update and under the reference, where they were measured."""

    logp: Tensor | None
    ref_logp: Tensor | None


class _Clock:
    """Measures named shares of a step."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Add the time since the last lap to a share."""
        now = time.perf_counter()
        self.times[name] = self.times.get(name, 0.0) + now - self._last
        self._last = now


class Run:
    """The state of one training run: policy, optimizer, random numbers, settings, where it stands.

    train() drives it; the benchmark takes its steps one by one.
    """

    def __init__(self, config: RunConfig, commands: Commands = tuple, *, task: Task | None = None) -> None:
        self.config, self._commands = config, commands
        self.task: Task = task or task_of(config)
        self.policy = start_policy(config, self.task.start)
        use_threads(self.policy)
        self.engine = make_engine(self.policy)
        check_start(self.policy, self.engine, self.task, config)
        self.reference = Reference(self.policy)
        self.refreshed = False
        self.reward_model = reward_model_of(config, self.policy)
        self.optimizer = Optimizer(self.policy.model, learning_rate=config.learning_rate)
        self.prompts = random.Random(f"prompts {config.seed}")
        self.chances = torch.Generator().manual_seed(config.seed)
        self.failures = random.Random(f"failures {config.seed}")
        self.held_out = self.task.held_out(config.eval_prompts)
        self.step = self.tokens = self.events = 0
        self.accuracy: float | None = None
        self.raised = 0
        self.stopped = self.paused = False
        self.train_seconds = self._paused_seconds = 0.0
        self._began = self._due = time.perf_counter()
        self._steps_left = 0
        self._planned: tuple[Rollout | None, Any] = (None, None)

    # --- events -----------------------------------------------------------------------------------

    def event(self, kind: str, **entries: Any) -> Event:
        """Give an event stamped with step and seconds since the start, pauses left out."""
        self.events += 1
        return {"event": kind, "step": self.step, "seconds": round(self.seconds, 4), **entries}

    @property
    def seconds(self) -> float:
        """Seconds since the start, pauses left out."""
        return time.perf_counter() - self._began - self._paused_seconds

    def start_event(self) -> Event:
        """Say what is about to be trained, and where."""
        config, model = self.config, self.policy.model
        return self.event(
            "start",
            config=config.to_dict(),
            warnings=list(config.warnings()),
            device=device_name(self.policy.device),
            threads=torch.get_num_threads(),
            model=type(model).__name__,
            parameters=self.policy.parameters,
            vocabulary=model.config.vocab_size,
            versions={"torch": torch.__version__, "transformers": transformers.__version__},
        )

    def eval_event(self) -> Event:
        """Measure accuracy on the held-out prompts."""
        thorough = self.step % (self.config.eval_every * THOROUGH_EVERY) == 0 or self.step == self.config.steps
        found = evaluate(
            self.policy,
            self.engine,
            self.held_out,
            max_new_tokens=self.config.max_new_tokens,
            temperature=self.config.temperature,
            samples=self.config.eval_samples if thorough else 1,
            judge=self.task.judge,
        )
        self.accuracy = found.get("sampled_accuracy")
        strata = [_rounded(part) for part in found.pop("strata")]
        return self.event("eval", **_rounded(found), prompts=len(self.held_out), strata=strata)

    def step_event(self) -> Event:
        """Take one step: sample, score, update, and say everything about it."""
        clock = _Clock()
        drawn = self._collect(clock)
        judged = self._judge(drawn.to_train(self.config.prompts_per_step))
        rollout = judged.draw.rollout
        clock.lap("scoring")
        ref_logp = self._reference_logps(rollout)
        clock.lap("reference")
        learned = self._update(judged, ref_logp)
        clock.lap("update")
        probe = _Probe(self._logps(self.engine, rollout) if self.config.probe else None, ref_logp)
        clock.lap("probe")
        self.step += 1
        measured = {**_behaviour(drawn, self.config), **_distances(rollout, probe), **self._refilled(drawn, judged)}
        measured |= self._troubles() | reward_model_metrics(drawn.scores) | step_statistics(judged.steps or ())
        pulls = advantage_statistics(judged.pulls)
        metrics = {**learned, **measured, **pulls, **self._settings(), **self._speed(drawn.rollout, clock)}
        groups = group_events(self.policy, judged, probe)
        return self.event("step", **_rounded(metrics), **_ratios(rollout, probe, self.config), groups=groups)

    def refresh_event(self) -> Iterator[Event]:
        """Make the reference a copy of the policy where it is due, and say so."""
        every = self.config.refresh_every
        if every and self.step % every == 0:
            self.refresh()
            yield self.event("command", name="refresh", value={"every": every})

    def refresh(self) -> None:
        """Copy the policy into the reference."""
        self.reference.take(self.policy.learned)
        self.refreshed = True

    # --- Algorithm 1 ------------------------------------------------------------------------------

    def first_labels(self) -> Iterator[Event]:
        """Train the reward model, where there is one, before the first step."""
        if self.reward_model is not None:
            parts = self.policy, self.engine, self.task, self._scores
            learned = first_labels(self.reward_model, self.config, *parts)
            yield self.event("command", name="iteration", value={"number": 0, **_rounded(learned)})

    def iteration_event(self) -> Iterator[Event]:
        """End an iteration where it is due: refresh the reference, train the reward model further, and say so."""
        every = self.config.iteration_steps
        if every and self.step % every == 0:
            self.refresh()
            learned = self.reward_model.fit() if self.reward_model is not None and self.config.retrain else {}
            yield self.event("command", name="iteration", value={"number": self.step // every, **_rounded(learned)})

    def _by_model(self, rollout: Rollout, scores: list[Score]) -> list[Score]:
        """Put the reward model's rewards, where there is one, in place of the verifier's, from which it learns."""
        if self.reward_model is None:
            return scores
        if self.config.retrain and self.config.iteration_steps:
            self.reward_model.remember(rollout, scores)
        return self.reward_model.judge(rollout, scores)

    # --- the parts of a step ----------------------------------------------------------------------

    def _collect(self, clock: _Clock) -> Draw:
        """Draw the step's prompts, and again as often as the run allows while too few groups have a signal."""
        draws = [self._draw(clock)]
        while len(draws) <= self.config.refills and sum(d.mixed for d in draws) < self.config.prompts_per_step:
            draws.append(self._draw(clock))
        return join_draws(draws)

    def _draw(self, clock: _Clock) -> Draw:
        problems = self.task.sample(self.prompts, self.config.prompts_per_step)
        prompts = encode(self.policy, [problem.prompt for problem in problems])
        rollout = self._sample(prompts, self.config.group_size)
        clock.lap("sampling")
        rows = own_tokens(rollout)
        texts, each = self.policy.texts(rows), [problem for problem in problems for _ in range(self.config.group_size)]
        scores = self._by_model(rollout, [self._or_failed(score) for score in self._scores(texts, each, rows)])
        clock.lap("scoring")
        return Draw(problems, rollout, rows, texts, scores)

    def _scores(self, texts: list[str], problems: list[Problem], rows: list[list[int]]) -> list[Score]:
        """Judge completions. A verifier that raises is asked for one at a time; what it cannot score is counted."""
        lengths = [len(row) for row in rows]
        try:
            found = self.task.scores(texts, problems, lengths)
        except MemoryError:
            raise
        except Exception:
            found = [self._score(*one) for one in zip(texts, problems, lengths, strict=True)]
        return [score if _finite_reward(score) else replace(score, reward=None) for score in found]

    def _score(self, text: str, problem: Problem, length: int) -> Score:
        try:
            return self.task.scores([text], [problem], [length])[0]
        except Exception as error:
            if not self.raised:
                print(f"The verifier raised {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            self.raised += 1
            return Score(None, math.nan, 0.0)

    def _troubles(self) -> dict[str, float]:
        """What the verifier could not do in this step, by kind."""
        found, raised = self.task.troubles(), self.raised
        self.raised = 0
        return {**found, "verifier/raised": found.get("verifier/raised", 0.0) + raised} if raised else found

    def _or_failed(self, score: Score) -> Score:
        """Leave some completions unscored, where the run's verifier is to fail now and then."""
        rate = self.config.verifier_failures
        return replace(score, reward=None) if rate and self.failures.random() < rate else score

    def _sample(self, prompts: Prompts, group_size: int, *, greedy: Tensor | None = None) -> Rollout:
        return sample(
            self.engine,
            prompts,
            group_size=group_size,
            max_new_tokens=self.config.max_new_tokens,
            eos=self.policy.tokenizer.eos_token_id,
            generator=self.chances,
            temperature=self.config.temperature,
            top_p=self.config.top_p,
            greedy=None if greedy is None else greedy.to(self.policy.device),
        )

    def _judge(self, draw: Draw) -> _Judged:
        rewards, greedy = faulty_rewards(draw.rewards, self.config.fault), self._greedy_rewards(draw)
        judged = _Judged(draw, rewards, advantages_of(rewards, draw.lengths, self.config, greedy))
        return judged if self.config.supervision == "outcome" else self._by_steps(judged)

    def _by_steps(self, judged: _Judged) -> _Judged:
        """Give every token an advantage of its own, from the rewards of the steps that end at or after it."""
        draw, shape = judged.draw, judged.rewards.shape
        each = [problem for problem in draw.problems for _ in range(shape[1])]
        cases = zip(self.policy.token_texts(draw.rows), each, with_none(judged.rewards.reshape(-1)), strict=True)
        steps = [verify_steps(*case) for case in cases]
        spec = advantage_spec(self.config)
        by_token = step_advantages(steps, [len(row) for row in draw.rows], shape[1], spec)
        means = np.reshape([row.mean() for row in by_token], shape)
        return replace(judged, advantages=replace(judged.advantages, advantages=means), steps=steps, by_token=by_token)

    def _greedy_rewards(self, draw: Draw) -> np.ndarray | None:
        """Rewards (P,) of the prompts' greedy completions, for the one estimator that wants them (ReMax)."""
        if advantage_spec(self.config).estimator != "greedy_baseline":
            return None
        likeliest = self._sample(draw.rollout.prompts, 1, greedy=torch.ones(len(draw.problems), dtype=torch.bool))
        rows = own_tokens(likeliest)
        scores = self._scores(self.policy.texts(rows), draw.problems, rows)
        return as_rewards([score.reward for score in self._by_model(likeliest, scores)])

    def _refilled(self, drawn: Draw, judged: _Judged) -> dict[str, float]:
        """How many groups were drawn, and how many of those that train have a signal; nothing without refills."""
        if self.config.refills == 0:
            return {}
        return {"groups/drawn": float(len(drawn.problems)), "groups/trained_mixed": float(judged.draw.mixed)}

    def _reference_logps(self, rollout: Rollout) -> Tensor | None:
        return self._logps(self.reference, rollout) if self.config.probe or self.config.beta > 0 else None

    @torch.no_grad()
    def _logps(self, engine: Engine | Reference, rollout: Rollout) -> Tensor:
        """Log-probabilities of a whole rollout under the policy or the reference, which share the rollout's plan."""
        if self._planned[0] is not rollout:
            self._planned = (rollout, engine.plan(rollout.prompts, rollout.completions))
        return engine.logps(self._planned[1], temperature=self.config.temperature)

    def _update(self, judged: _Judged, ref_logp: Tensor | None) -> dict[str, float]:
        rollout = judged.draw.rollout
        if judged.by_token is not None:
            advantages = padded(judged.by_token, rollout.logp)
        else:  # first the precision, then the device: not every device has float64
            advantages = torch.from_numpy(judged.advantages.advantages.reshape(-1)).float().to(rollout.logp.device)
        objective, uniform = objective_of(self.config), None
        if objective.surrogate == "clip_cov":
            uniform = torch.rand(rollout.logp.shape, generator=self.chances).to(rollout.logp)
        found = update(
            self.engine,
            self.optimizer,
            rollout,
            UpdateInputs(
                advantages,
                ref_logp if objective.beta > 0 else None,
                uniform,
                shared_graph=self.config.fault == "shared_graph",
            ),
            objective,
            inner_epochs=self.config.inner_epochs,
            learning_rate=self.config.learning_rate,
            max_grad_norm=self.config.max_grad_norm,
            temperature=self.config.temperature,
            plan=self._planned[1] if self._planned[0] is rollout else None,
        )
        # Those are means over the inner epochs; the KLs of a step are measured once, by the probe.
        return {name: value for name, value in found.items() if not name.startswith("kl")}

    def _settings(self) -> dict[str, float]:
        names = ("learning_rate", "beta", "epsilon_low", "epsilon_high", "temperature", "group_size", "inner_epochs")
        return {name: getattr(self.config, name) for name in names}

    def _speed(self, rollout: Rollout, clock: _Clock) -> dict[str, float]:
        sampled = int(rollout.completions.lengths.sum())
        self.tokens += sampled + int(rollout.prompts.lengths.sum()) * self.config.group_size
        spent = sum(clock.times.values())
        self.train_seconds += spent
        shares = {f"time/{name}": seconds for name, seconds in clock.times.items()}
        return {
            **shares,
            "step_time": spent,
            "train_seconds": self.train_seconds,
            "tokens_per_second": sampled / spent,
            "completion_tokens": sampled,
            "num_tokens": self.tokens,
        }

    # --- checkpoints ------------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Give all that the next step depends on: tensors, and plain data."""
        tensors = {f"optimizer.{name}": tensor for name, tensor in self.optimizer.snapshot().items()}
        tensors["chances"] = self.chances.get_state()
        if self.reward_model is not None:
            tensors |= {f"reward_model.{name}": tensor for name, tensor in self.reward_model.snapshot().items()}
        if self.refreshed:
            tensors |= {f"reference.{i}": tensor.detach() for i, tensor in enumerate(self.reference.learned)}
        state = {
            **{name: getattr(self, name) for name in _PLAIN},
            "seconds": self.seconds,
            "config": self.config.to_dict(),
            "prompts": self.prompts.getstate(),
            "failures": self.failures.getstate(),
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        }
        return {name: tensor.contiguous().cpu() for name, tensor in tensors.items()}, state

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take over a snapshot; CheckpointError when it does not fit this run."""
        tensors, state = checkpoint.tensors(), checkpoint.state
        try:
            self.optimizer.restore(_named(tensors, "optimizer."))
            self.chances.set_state(tensors["chances"])
            if self.reward_model is not None:
                self.reward_model.restore(_named(tensors, "reward_model."))
            if state["refreshed"]:
                self.reference.take([tensors[f"reference.{i}"] for i in range(len(self.reference.learned))])
            for name in _PLAIN:
                setattr(self, name, state[name])
            self._began = time.perf_counter() - state["seconds"]
            for generator, known in ((self.prompts, state["prompts"]), (self.failures, state["failures"])):
                generator.setstate((known[0], tuple(known[1]), known[2]))
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            raise CheckpointError(
                "The checkpoint {file} does not fit this run: {error}", file=checkpoint.path.name, error=error
            ) from None

    # --- commands and pace ------------------------------------------------------------------------

    def obey(self) -> Iterator[Event]:
        """Take the commands that have come, and wait while the run is paused or ahead of its pace."""
        since = time.perf_counter()
        yield from self.take()
        while not self.stopped and self._must_wait():
            time.sleep(POLL_SECONDS)
            if self.paused:
                now = time.perf_counter()
                self._paused_seconds, since = self._paused_seconds + now - since, now
            else:
                since = time.perf_counter()
            yield from self.take()
        self._steps_left = max(0, self._steps_left - 1)
        self._due = max(self._due, time.perf_counter() - POLL_SECONDS) + 1.0 / (self.config.pace or 1e9)

    def _must_wait(self) -> bool:
        if self.paused:
            return self._steps_left == 0
        return self.config.pace is not None and time.perf_counter() < self._due

    def take(self) -> Iterator[Event]:
        """Take the commands that have come."""
        for command in self._commands():
            yield self.event("command", name=command.name, **{"value": command.value, **self._apply(command)})

    def _apply(self, command: Command) -> dict[str, Any]:
        """Let a command take effect; a setting that is not accepted changes nothing and says why."""
        name = command.name
        if name == "set":
            try:
                changes = with_recipe(command.value)
                self.config = self.config.changed(**changes)
            except (TypeError, ValueError) as error:
                return {"refused": message_of(error)}
            return {"value": changes}
        if name == "refresh":
            self.refresh()
            return {}
        self.stopped = self.stopped or name == "stop"
        self.paused = {"pause": True, "step": True, "resume": False}.get(name, self.paused)
        self._steps_left = self._steps_left + 1 if name == "step" else 0
        return {}


_PLAIN = ("step", "tokens", "events", "accuracy", "train_seconds", "refreshed")
"""What of a run's state is plain data, besides its settings and random numbers."""


def continued(checkpoint: Checkpoint, commands: Commands = tuple) -> Run:
    """Give the run that a checkpoint was made of, as it stood; CheckpointError when that is not possible."""
    run = Run(_config_of(checkpoint), commands)
    run.restore(checkpoint)
    return run


def policy_of(checkpoint: Checkpoint) -> Policy:
    """Give the policy of a checkpoint, and nothing else of its run."""
    config = _config_of(checkpoint)
    policy = start_policy(config, task_of(config).start)
    try:
        Optimizer(policy.model, learning_rate=0.0).restore(_named(checkpoint.tensors(), "optimizer."))
    except (KeyError, ValueError) as error:
        raise CheckpointError(
            "The checkpoint {file} does not fit its model: {error}", file=checkpoint.path.name, error=error
        ) from None
    return policy


def _config_of(checkpoint: Checkpoint) -> RunConfig:
    try:
        return RunConfig.from_dict(checkpoint.state["config"])
    except (KeyError, ValueError, TypeError) as error:
        raise CheckpointError(
            "The checkpoint {file} is of another version: {error}", file=checkpoint.path.name, error=error
        ) from None


def _named(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Give the tensors whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def advantages_of(
    rewards: np.ndarray, lengths: np.ndarray, config: RunConfig, greedy_rewards: np.ndarray | None = None
) -> GroupAdvantages:
    """Advantages of rewards (P, G), nan for unscored, by the run's recipe; lengths (P, G) are in tokens."""
    spec = advantage_spec(config)
    if spec.reward_aggregation == "normalize_then_sum":
        return multi_reward_advantages(rewards[..., None], spec, lengths=lengths)
    return compute_advantages(rewards, spec, lengths=lengths, greedy_rewards=greedy_rewards)


def group_events(policy: Policy, judged: _Judged, probe: _Probe) -> list[Event]:
    """Write the groups of a step as plain data; see grpo_core.live.groups."""
    draw, rollout = judged.draw, judged.draw.rollout
    size = rollout.completions.group_size
    lengths = [len(row) for row in draw.rows]
    logp = probe.logp if probe.logp is not None else rollout.logp
    parts = {"old_logp": rollout.logp, "logp": logp, "entropy": rollout.entropy}
    if probe.ref_logp is not None:
        parts["ref_logp"] = probe.ref_logp
    heavy: dict[str, list[Any]] = dict(zip(parts, _ragged(list(parts.values()), lengths), strict=True))
    heavy["tokens"] = policy.token_texts(draw.rows)
    if judged.by_token is not None:
        heavy["token_advantages"] = [row.round(6).tolist() for row in judged.by_token]
    finish = ["eos" if done else "length" for done in rollout.finished.tolist()]
    found = []
    for i, kind in enumerate(judged.kinds):
        span = slice(i * size, (i + 1) * size)
        rows = {name: values[span] for name, values in heavy.items()}
        light = {**_light_group(judged, i, span), "kind": kind}
        found.append({**light, "lengths": lengths[span], "finish": finish[span], "ref_logp": None, **rows})
    return found


def _light_group(judged: _Judged, i: int, span: slice) -> Event:
    """What a group's event says of texts, rewards and advantages."""
    problem, scores = judged.draw.problems[i], judged.draw.scores[span]
    return {
        "prompt": problem.prompt,
        "answer": problem.answer,
        "completions": judged.draw.texts[span],
        "rewards": with_none(judged.rewards[i]),
        "reward_parts": {part: with_none(np.array([getattr(s, part) for s in scores])) for part in PARTS},
        "mean": round(float(judged.advantages.mean[i]), 6),
        "std": round(float(judged.advantages.std[i]), 6),
        "advantages": [round(a, 6) for a in judged.advantages.advantages[i].tolist()],
        **_step_entries(judged, span),
    }


def _step_entries(judged: _Judged, span: slice) -> Event:
    """Where the steps of a group's completions end, and what each one was paid; nothing under outcome supervision."""
    if judged.steps is None:
        return {}
    own = judged.steps[span]
    return {"step_ends": [one.ends for one in own], "step_rewards": [one.rewards for one in own]}


def _behaviour(drawn: Draw, config: RunConfig) -> dict[str, float]:
    """What all that was drawn says of the policy: rewards, kinds of groups, lengths, entropy."""
    rewards = reward_statistics(faulty_rewards(drawn.rewards, config.fault))
    return {
        "reward_mean": rewards["reward"],
        **rewards,
        **{f"rewards/{part}/mean": _mean_part(drawn, part) for part in PARTS},
        **{f"groups/{kind}": float(drawn.kinds.count(kind)) for kind in KINDS},
        "completions/unscored": float(np.isnan(drawn.rewards).sum()),
        "completions/unscored_ratio": float(np.isnan(drawn.rewards).mean()),
        **length_statistics(drawn.lengths.reshape(-1), ~drawn.rollout.finished.cpu().numpy()),
        "entropy": float(masked_mean(drawn.rollout.entropy, drawn.rollout.completions.mask)),
    }


def _distances(rollout: Rollout, probe: _Probe) -> dict[str, float]:
    """KL to the reference before the update, and to the old policy after it, over what was trained on."""
    mask, found = rollout.completions.mask, {}
    if probe.ref_logp is not None:
        found["kl"] = float(masked_mean(kl_estimate(rollout.logp, probe.ref_logp), mask))
    if probe.logp is not None:
        found["kl_old"] = float(masked_mean(kl_estimate(rollout.logp, probe.logp), mask))
    return found


def _mean_part(drawn: Draw, part: str) -> float:
    """The mean over what could be scored: nan where nothing could."""
    known = [value for score in drawn.scores if not math.isnan(value := getattr(score, part))]
    return float(np.mean(known)) if known else math.nan


def _ratios(rollout: Rollout, probe: _Probe, config: RunConfig) -> Event:
    """The importance ratios after the update: extremes, share outside the clip range, histogram; nothing without probe.

    The clip fraction is another thing: it is taken at each update, before the weights move.
    """
    if probe.logp is None:
        return {}
    ratio = importance_ratio(probe.logp, rollout.logp, rollout.completions.mask).cpu().numpy()
    mask = rollout.completions.mask.cpu().numpy()
    counts, edges = ratio_histogram(ratio, mask)
    picture = {"edges": edges.round(6).tolist(), "counts": counts.tolist()}
    epsilons = {"epsilon_low": config.epsilon_low, "epsilon_high": config.epsilon_high}
    return {**_rounded(ratio_statistics(ratio, mask, **epsilons)), "ratio_histogram": picture}


def _finite_reward(score: Score) -> bool:
    return score.reward is None or math.isfinite(score.reward)


def _ragged(tables: list[Tensor], lengths: list[int]) -> list[list[list[float]]]:
    """Give tables (B, T) as lists of each completion's own tokens, rounded to a millionth."""
    rounded = torch.stack(tables).detach().cpu().double().round(decimals=6).tolist()
    return [[row[:n] for row, n in zip(rows, lengths, strict=True)] for rows in rounded]


def _rounded(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Seven significant digits are all a float32 has."""
    return {name: float(f"{value:.7g}") if isinstance(value, float) else value for name, value in metrics.items()}
