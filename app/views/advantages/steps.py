"""Process supervision: rewards of steps become advantages of tokens, beside outcome supervision of the same group."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import streamlit as st

from app import formulas, redraw, state, widgets
from app.figures import advantages_steps as figures
from app.lens import Lens
from app.numbers import bracketed, cell, latex, plain, signed
from app.params import MOST_STEPS, Param, Steps
from app.widgets import Question, Readout, Row, Table
from app.words import prose, t
from grpo_core import GroupAdvantages, as_rewards, group_advantages
from grpo_core.steps import normalised_steps, process_advantages


@dataclass(frozen=True)
class Supervised:
    """Completions with their steps, the baseline of a step, and how the std is taken."""

    steps: Steps
    baseline: str
    ddof: int
    eps: float
    chosen: int

    @property
    def rewards(self) -> list[list[float]]:
        """Each completion's step rewards."""
        return [[reward for reward, _ in row] for row in self.steps]

    @property
    def ends(self) -> list[list[int]]:
        """Each step's last token, counted from 0."""
        return [[end - 1 for _, end in row] for row in self.steps]

    @property
    def lengths(self) -> list[int]:
        """Tokens of each completion: its last step ends it."""
        return [row[-1][1] for row in self.steps]

    @cached_property
    def normalised(self) -> list[np.ndarray]:
        """Each step's reward, centred and scaled."""
        return normalised_steps(self.rewards, baseline=self.baseline, ddof=self.ddof, eps=self.eps)

    @cached_property
    def tokens(self) -> list[np.ndarray]:
        """Each token's advantage."""
        return process_advantages(
            self.rewards, self.ends, self.lengths, baseline=self.baseline, ddof=self.ddof, eps=self.eps
        )

    @cached_property
    def outcome(self) -> GroupAdvantages:
        """Outcome supervision: the last step's reward is the completion's."""
        return group_advantages(as_rewards([row[-1] for row in self.rewards]), ddof=self.ddof, eps=self.eps)

    @property
    def first(self) -> list[float]:
        """The advantage of each completion's first token."""
        return [float(row[0]) for row in self.tokens]

    def pool(self, step: int) -> tuple[GroupAdvantages, int]:
        """Return the advantages that the chosen completion's step is normalised among, and which of them it is."""
        places = [(i, k) for i, row in enumerate(self.rewards) for k in range(len(row))]
        if self.baseline == "position":
            places = [place for place in places if place[1] == step]
        rewards = as_rewards([self.rewards[i][k] for i, k in places])
        return group_advantages(rewards, ddof=self.ddof, eps=self.eps), places.index((self.chosen, step))


def supervised(lens: Lens) -> Supervised:
    """Return what the settings describe."""
    v, steps = lens.values, lens.values["steps"]
    chosen = min(int(v["sc"]), len(steps)) - 1
    return Supervised(steps, v["step_base"], int(lens.spec.ddof), float(lens.spec.eps), chosen)


# Controls


def settings(lens: Lens) -> None:
    """Draw the steps: all as text, those of one completion as sliders."""
    own, live = supervised(lens), st.container()
    widgets.choice("step_base")
    widgets.choice("ddof")
    text_line(own.steps)
    with live:
        widgets.controls("steps", [*size_rows(own), *step_rows(own)])


def text_line(steps: Steps) -> None:
    """Draw all steps as lines of text to edit."""
    typed, problem = state.lab().errors.get("steps", ("", ""))
    widgets.fill("lines-steps", typed if problem else written(steps))
    st.text_area(
        widgets.label("steps"),
        key="lines-steps",
        help=widgets.help_of("steps"),
        height=40 + 24 * max(2, min(len(steps), 6)),
        max_chars=1000,
        on_change=redraw.then(lambda: state.edit_value("steps", st.session_state["lines-steps"])),
        disabled=state.locked(),
    )
    if problem:
        st.error(widgets.literal(problem), icon=":material/edit:")


def written(steps: Steps) -> str:
    """Return steps as the text that the reader edits."""
    return "\n".join(", ".join(f"{cell(reward)} @ {end}" for reward, end in row) for row in steps)


def size_rows(own: Supervised) -> list[Row]:
    """Return rows for the number of completions, the one to edit, and the number of its steps."""
    whole = Param(name="", kind="whole", low=1, high=MOST_STEPS, step=1)
    count = len(own.steps)
    return [
        _row("step:size", t("control.completions"), count, whole, help=t("control.completions_help")),
        {**widgets.slider("sc"), "value": own.chosen + 1, "text": str(own.chosen + 1), "high": max(count, 2)},
        _row(f"step:count:{own.chosen}", t("control.step_count"), len(own.steps[own.chosen]), whole),
    ]


def step_rows(own: Supervised) -> list[Row]:
    """Return two rows for each step of the chosen completion: its reward, and its last token."""
    row = own.steps[own.chosen]
    reward = Param(name="", kind="number", low=min(0.0, *(r for r, _ in row), 0.0), high=1.0, step=0.05)
    longest = max(16, *(end for end in own.lengths))
    end = Param(name="", kind="whole", low=1, high=longest, step=1)
    rows = []
    for k, (value, last) in enumerate(row):
        at, number = f"{own.chosen}:{k}", k + 1
        rows.append(
            _row(f"step:reward:{at}", t("control.step_reward", number=number), value, reward,
                 help=t("control.step_reward_help"))
        )  # fmt: skip
        rows.append(
            _row(f"step:end:{at}", t("control.step_end", number=number), last, end, help=t("control.step_end_help"))
        )
    return rows


def _row(name: str, title: str, value: float, param: Param, **more: Any) -> Row:
    return {**widgets.edit_row(name, title, value, param), **more}


# Picture and what belongs to it


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    own = supervised(lens)
    rows = [
        figures.Stairs(tokens, float(outcome), [end for _, end in row], [reward for reward, _ in row])
        for tokens, outcome, row in zip(own.tokens, own.outcome.advantages, own.steps, strict=True)
    ]
    widgets.picture(figures.staircases(widgets.colors(), rows, chosen=own.chosen), "steps", alt=t("alt.steps"))
    i = own.chosen
    widgets.readouts(
        [
            Readout("step_total", str(sum(map(len, own.steps)))),
            Readout("first_token", signed(own.first[i])),
            Readout("last_token", signed(float(own.tokens[i][-1]))),
            Readout("outcome_advantage", signed(float(own.outcome.advantages[i]))),
        ]
    )
    widgets.formula(formula(own))
    section, numbers = notice(own)
    widgets.notice("advantages", section, **numbers)
    st.caption(prose("advantages", "steps-alignment"))
    widgets.check_yourself("steps", lambda: question(own))
    widgets.take_away("advantages-steps", "steps", lambda: snippet(own), lambda: table(own))


def formula(own: Supervised) -> list[str]:
    """Return one step's reward normalised, the first token's sum, and outcome supervision, with numbers."""
    i = own.chosen
    number, rewards = i + 1, own.rewards[i]
    k = int(np.argmax(np.abs(own.normalised[i])))
    pool, at = own.pool(k)
    terms = [bracketed(value) for value in own.normalised[i]]
    shown = terms if len(terms) <= 4 else [terms[0], r"\dots", terms[-1]]
    left = rf"\tilde r_{{{number},{k + 1}}}"
    return [
        formulas.normalised(left, rf"r_{{{number},{k + 1}}}", rewards[k], pool, own.eps, at),
        rf"A_{{{number},1}} &= \sum_j \tilde r_{{{number},j}} \quad\text{{(first token)}}",
        rf"&= {' + '.join(shown)} = {latex(own.first[i], sign=True)}",
        formulas.normalised(rf"A_{{{number}}}", rf"r_{{{number}}}", rewards[-1], own.outcome, own.eps, i)
        + r" \quad\text{(outcome)}",
    ]


def notice(own: Supervised) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    if own.baseline == "position":
        return "steps-position", _aligned(own)
    flat = [reward for row in own.rewards for reward in row]
    if min(flat) == max(flat):
        return "steps-flat", {"reward": plain(flat[0], 2)}
    pair = _same_outcome(own)
    if pair is None:
        i = own.chosen
        return "steps", {"number": str(i + 1), "first": signed(own.first[i]), "outcome": _outcome(own, i)}
    high, low = pair
    numbers = {
        "high": str(high + 1), "low": str(low + 1), "more": signed(own.first[high]), "less": signed(own.first[low]),
        "outcome": _outcome(own, low), "many": str(len(own.steps[high])), "few": str(len(own.steps[low])),
    }  # fmt: skip
    wrong = min(own.rewards[low]) < min(own.rewards[high])
    return ("steps-wrong" if wrong else "steps-many"), numbers


def _outcome(own: Supervised, index: int) -> str:
    return signed(float(own.outcome.advantages[index]))


def _same_outcome(own: Supervised) -> tuple[int, int] | None:
    """Return two completions with the best answer whose first tokens differ most, the better one first."""
    best = max(row[-1] for row in own.rewards)
    alike = [i for i, row in enumerate(own.rewards) if row[-1] == best]
    high, low = max(alike, key=own.first.__getitem__), min(alike, key=own.first.__getitem__)
    return (high, low) if own.first[high] - own.first[low] > 1e-9 else None


def _aligned(own: Supervised) -> dict[str, str]:
    """Return how well steps of the same number match: where they end, and which have no counterpart."""
    counts = [len(row) for row in own.steps]
    last = min(counts)
    ends = sorted({row[last - 1][1] for row in own.steps})
    alone = sum(sum(n > k for n in counts) == 1 for k in range(max(counts)))
    return {"step": str(last), "low": str(ends[0]), "high": str(ends[-1]), "alone": str(alone)}


def question(own: Supervised) -> Question:
    """Ask for the advantage of the chosen completion's last token."""
    i = own.chosen
    value = float(own.tokens[i][-1])
    pool, _ = own.pool(len(own.steps[i]) - 1)
    numbers = {
        "number": i + 1, "reward": plain(own.rewards[i][-1], 2), "answer": signed(value),
        "mean": plain(float(pool.mean)), "std": plain(float(pool.std)),
    }  # fmt: skip
    return Question(prose("advantages", "ask-steps", **numbers), value, prose("advantages", "worked-steps", **numbers))


def snippet(own: Supervised) -> str:
    """Return Python for both kinds of supervision."""
    return f"""from grpo_core import as_rewards, group_advantages, process_advantages

step_rewards = {own.rewards!r}
step_ends = {own.ends!r}  # last token of each step, counted from 0
lengths = {own.lengths!r}
options = dict(ddof={own.ddof}, eps={own.eps!r})
for advantages in process_advantages(step_rewards, step_ends, lengths, baseline={own.baseline!r}, **options):
    print(advantages)
print(group_advantages(as_rewards([row[-1] for row in step_rewards]), **options).advantages)"""


def table(own: Supervised) -> Table:
    """Return every token's advantage as data."""
    rows = []
    for i, (tokens, row) in enumerate(zip(own.tokens, own.steps, strict=True)):
        bounds = [0, *(end for _, end in row)]
        for k, (start, end) in enumerate(itertools.pairwise(bounds)):
            outcome = float(own.outcome.advantages[i])
            rows += [
                (i + 1, position + 1, k + 1, row[k][0], float(tokens[position]), outcome)
                for position in range(start, end)
            ]
    header = ("completion", "position", "step", "step reward", "advantage", "advantage under outcome supervision")
    return Table(header, rows)
