"""What goes wrong in a training: a loss that is no number, memory that is used up, a verifier that raises."""

import errno
import json
import os
import subprocess
import sys

import pytest

from grpo_core.live.checkpoints import Checkpoints
from grpo_core.live.commands import Command
from grpo_core.live.config import RunConfig
from grpo_core.live.memory import out_of_memory
from grpo_core.live.runner import resume_run, start_run
from grpo_core.live.store import RunStore
from grpo_core.live.tasks import TASKS, Task
from grpo_core.live.trainer import Run, train
from tests.live.test_worker import ended

FAST = {"pace": None, "eval_prompts": 8, "eval_samples": 1, "prompts_per_step": 4}
DIVERGES = {"learning_rate": 1.0, "inner_epochs": 4, "beta": 1.0, "max_grad_norm": 1e6}
"""The first of the four updates moves every weight by 1, so that the KL term of the second is beyond any number."""


def test_a_real_divergence_stops_keeps_and_explains(tmp_path):
    kept = Checkpoints(tmp_path)
    polls = iter([[], [], [], [Command("set", DIVERGES)]])
    events = list(train(RunConfig(steps=50, **FAST), lambda: next(polls, []), checkpoints=kept))
    end = events[-1]
    assert (end["state"], end["step"], end["cause"], end["checkpoint"]) == ("failed", 3, "diverged", 3)
    assert end["reason"].startswith("Step 4 cannot be taken: the loss is ")
    assert "Go on from the checkpoint of step 3 with a learning rate below 1." in end["reason"]
    json.dumps(events, allow_nan=False)
    assert [event["step"] for event in events if event["event"] == "step"] == [1, 2, 3]


def test_a_run_that_diverged_goes_on_from_the_last_good_checkpoint_with_other_settings(tmp_path):
    store = RunStore(tmp_path)
    steep = {"learning_rate": 0.3, "eval_every": 2, "checkpoint_every": 2}
    run_id = start_run(RunConfig(steps=4, **{**FAST, "eval_every": 2, "checkpoint_every": 2}), store)
    assert ended(store, run_id).state == "finished"
    # Four steps that ruin the policy while every number stays finite, then the one that ends it.
    resume_run(run_id, store, {**steep, "steps": 8})
    assert ended(store, run_id).state == "finished"
    before, ruined = [row["sampled_accuracy"] for row in store.metrics(run_id) if row["event"] == "eval"][-3::2]
    assert ruined < before / 2
    resume_run(run_id, store, {**DIVERGES, "steps": 20})
    run = ended(store, run_id)
    assert (run.state, run.step) == ("failed", 8)
    assert "the checkpoint of step 4 with a learning rate below 1." in run.reason
    resume_run(run_id, store, {"learning_rate": 1e-4, "beta": 0, "inner_epochs": 1, "max_grad_norm": 1, "steps": 6})
    run = ended(store, run_id)
    assert (run.state, run.step, run.reason) == ("finished", 6, "")
    rows = store.metrics(run_id)
    assert [row["step"] for row in rows if row["event"] == "step"] == [1, 2, 3, 4, 5, 6]
    assert [row["sampled_accuracy"] for row in rows if row["event"] == "eval"][-1] >= before / 2


SHORT = """
import json, resource, sys
from grpo_core.live.config import RunConfig
from grpo_core.live.trainer import train
sizes = {"group_size": 64, "prompts_per_step": 64, "max_new_tokens": 48}
events = train(RunConfig(pace=None, eval_prompts=4, eval_samples=1, temperature=2.0, beta=0.1, **sizes))
next(events), next(events)
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 10_000_000,) * 2)
for event in events:
    end = event
print(json.dumps(end))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux to limit the memory")
def test_memory_that_is_used_up_says_what_to_lower():
    done = subprocess.run([sys.executable, "-c", SHORT], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    end = json.loads(done.stdout)
    assert (end["event"], end["state"], end["cause"]) == ("end", "failed", "out_of_memory")
    assert "Lower one of prompts_per_step (now 64), group_size (now 64), max_new_tokens (now 48)" in end["reason"]
    assert "4096 completions at once" in end["reason"]


def test_what_means_out_of_memory():
    assert out_of_memory(MemoryError())
    assert out_of_memory(RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"))
    assert out_of_memory(RuntimeError("could not create a primitive"))  # as oneDNN says it
    assert out_of_memory(OSError(errno.ENOMEM, "Cannot allocate memory"))
    assert not out_of_memory(RuntimeError("shapes do not match"))
    assert not out_of_memory(OSError(errno.ENOSPC, "No space left on device"))


class Moody(Task):
    """A verifier that raises for some completions, says nothing for others, and inf for the rest."""

    def scores(self, completions, problems, lengths):
        if any("<think>" in text for text in completions):
            raise ZeroDivisionError("a bug of the verifier")
        return super().scores(completions, problems, lengths)


def test_a_verifier_that_raises_leaves_those_unscored_and_is_counted(capfd):
    plain = TASKS["shell_game"]
    moody = Moody(plain.name, plain.swaps, plain.verifier)
    config = RunConfig(**{**FAST, "prompts_per_step": 8})
    step, expected = Run(config, task=moody).step_event(), Run(config).step_event()
    unscored = 0
    for group, other in zip(step["groups"], expected["groups"], strict=True):
        assert group["completions"] == other["completions"]
        for text, reward, right in zip(group["completions"], group["rewards"], other["rewards"], strict=True):
            assert reward == (None if "<think>" in text else right)
            unscored += "<think>" in text
    assert unscored > 0
    assert step["completions/unscored"] == step["verifier/raised"] == unscored
    assert "verifier/raised" not in expected
    assert capfd.readouterr().err == "The verifier raised ZeroDivisionError: a bug of the verifier\n"


class Endless(Task):
    """A verifier whose reward is no number that can train."""

    def scores(self, completions, problems, lengths):
        found = super().scores(completions, problems, lengths)
        return [type(score)(float("inf"), score.accuracy, score.format) for score in found]


def test_a_reward_that_is_not_finite_is_unscored():
    plain = TASKS["shell_game"]
    step = Run(RunConfig(**FAST), task=Endless(plain.name, plain.swaps, plain.verifier)).step_event()
    assert step["completions/unscored"] == 32
    assert {group["kind"] for group in step["groups"]} == {"unscored"}
