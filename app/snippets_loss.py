"""Python to take away from the Loss page: the whole loss, and the pull of single tokens, under any recipe."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from app.lens import Lens
from app.walk import Chain
from grpo_core import AdvantageSpec, Objective

MOST_TOKENS = 1500  # a larger group is read from a file instead of standing in the snippet


def setup(lens: Lens) -> str:
    """Return the code that builds the group's batch and the objective."""
    options, uniform = [], ""
    if lens.spec.estimator == "greedy_baseline":
        options.append(f"greedy_rewards=[{float(lens.values['greedy'])!r}]")
    if _draws(lens):
        uniform = f"""
draw = np.random.default_rng({lens.values["draw"]}).random(batch.logp.shape)
batch = dataclasses.replace(batch, uniform=draw)"""
    arguments = ", ".join(["[group]", "spec", *options])
    return f"""group = Group.from_json({_group(lens)})
spec = {code(lens.spec, AdvantageSpec())}
objective = {code(lens.objective, Objective())}
batch = GroupBatch.from_groups({arguments}){uniform}"""


def imports(lens: Lens, *more: str) -> str:
    """Return the import lines that `setup` needs, and `more` names of the core."""
    names = {"AdvantageSpec", "Group", "GroupBatch", "Objective", *more}
    names.update(_extra(lens))
    drawn = "import dataclasses\nimport numpy as np\n" if _draws(lens) else ""
    return f"{drawn}from grpo_core import {', '.join(sorted(names))}"


def loss(lens: Lens) -> str:
    """Return the loss of the whole group."""
    return f"""{imports(lens, "loss_terms")}

{setup(lens)}
print(float(loss_terms(batch, objective).loss))"""


def pull(lens: Lens, at: Chain | None) -> str:
    """Return the loss and, if one is chosen, the pull of one token."""
    if at is None:
        return loss(lens)
    return f"""{imports(lens, "loss_terms")}
from grpo_core.token_gradients import gradients_of

{setup(lens)}
terms = loss_terms(batch, objective)
print(float(terms.loss))
print(-float(gradients_of(terms).total[{at.completion}, {at.position}]))  # completion and position from 0"""


def compare(first: Lens, second: Lens) -> str:
    """Return both losses and how much of all pull moves between them."""
    drawn = second if _draws(second) else first
    return f"""{imports(drawn, "loss_terms", *_extra(first), *_extra(second))}
from grpo_core.token_gradients import token_gradients

{setup(first)}
first = -token_gradients(batch, objective).total
print(float(loss_terms(batch, objective).loss))

{setup(second)}
second = -token_gradients(batch, objective).total
print(float(loss_terms(batch, objective).loss))
print(float(abs(second - first).sum()))"""


def _draws(lens: Lens) -> bool:
    """Return whether the objective drops tokens at random."""
    return lens.objective.surrogate == "clip_cov"


def _extra(lens: Lens) -> list[str]:
    return ["Whitening"] if lens.spec.whitening is not None else []


def code(value: Any, plain: Any) -> str:
    """Return a dataclass as code: only the fields that differ from `plain`."""
    names = [field.name for field in dataclasses.fields(value)]
    changed = [name for name in names if getattr(value, name) != getattr(plain, name)]
    return f"{type(value).__name__}(" + ", ".join(f"{name}={getattr(value, name)!r}" for name in changed) + ")"


def _group(lens: Lens) -> str:
    if sum(len(row) for row in lens.group.tokens) > MOST_TOKENS:
        return 'open("group.json", encoding="utf-8").read()'
    return repr(group_json(lens))


def group_json(lens: Lens) -> str:
    """Return the group as JSON text."""
    return json.dumps(lens.group.to_json(), separators=(",", ":"))
