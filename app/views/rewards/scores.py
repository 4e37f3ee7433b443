"""Every completion scored by every verifier, the weighted sum, and the advantages it makes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from app import formulas, state, widgets
from app.bench import Bench
from app.figures import rewards as figures
from app.formulas import plain_spec
from app.lens import Lens, look
from app.numbers import bracketed, latex, plain, signed
from app.snippets_loss import code
from app.views.rewards import texts
from app.widgets import Question, Readout, Table, slider
from app.words import prose, said, t, told
from grpo_core import AdvantageSpec, GroupAdvantages
from grpo_core.answers import extract_answer, same_answer
from grpo_core.rewards import RewardComponent, RewardReport, Sample, accuracy_reward, score_completions

READERS = {"w_tag": ("answer_tag",), "w_box": ("boxed",), "w_num": ("last_number",)}
VERIFIERS = {
    "w_tag": "accuracy", "w_box": "accuracy", "w_num": "accuracy", "w_any": "gold_anywhere", "w_fmt": "format",
    "w_lang": "language", "w_long": "overlong",
}  # fmt: skip


@dataclass(frozen=True)
class Scores:
    """The bench with what its verifiers say."""

    bench: Bench
    components: tuple[RewardComponent, ...]
    reports: tuple[RewardReport, ...]
    result: GroupAdvantages

    @property
    def totals(self) -> list[float | None]:
        """Each completion's reward, None for unscored."""
        return [report.reward for report in self.reports]

    @property
    def advantages(self) -> np.ndarray:
        """Each completion's advantage."""
        return np.asarray(self.result.advantages)

    @property
    def right(self) -> list[bool | None]:
        """Whether each completion itself says the right answer; None without a gold answer."""
        values = [accuracy_reward(text, self.bench.gold or None) for text in self.bench.texts]
        return [None if value is None else value == 1.0 for value in values]


def components(lens: Lens) -> tuple[RewardComponent, ...]:
    """Return the verifiers that are on, with weights and hyperparameters."""
    v = lens.values
    own: dict[str, dict[str, Any]] = {
        name: {"modes": modes, "unanswered": None if v["no_answer"] == "unscored" else 0.0}
        for name, modes in READERS.items()
    }
    own["w_lang"] = {"script": v["script"]}
    own["w_long"] = overlong(lens)
    return tuple(
        RewardComponent(verifier=verifier, weight=float(v[name]), options=own.get(name, {}), name=name[2:])
        for name, verifier in VERIFIERS.items()
        if v[name] is not None
    )


def overlong(lens: Lens) -> dict[str, Any]:
    """Return the overlong verifier's hyperparameters; the cache is at most the limit."""
    limit = int(lens.values["long_max"])
    return {"max_length": limit, "cache": min(int(lens.values["long_cache"]), limit)}


def samples(bench: Bench) -> list[Sample]:
    """Return the completions as verifiers see them."""
    return [Sample(text, bench.gold.strip() or None, len(texts.split(text))) for text in bench.texts]


def scored(lens: Lens, bench: Bench) -> Scores | None:
    """Return the scores, or None while no verifier is on."""
    used = components(lens)
    if not used:
        return None
    reports = tuple(score_completions(samples(bench), used))
    group = texts.as_group(bench, list(reports))
    return Scores(bench, used, reports, group.advantages(lens.spec, greedy_reward=float(lens.values["greedy"])))


def settings(lens: Lens) -> None:
    """Draw the controls."""
    v = lens.values
    rows = [slider(name, value=1.0) for name in VERIFIERS]
    if v["w_long"] is not None:
        rows += [slider("long_max"), {**slider("long_cache"), "high": max(2, int(v["long_max"]))}]
    widgets.controls("verifiers", rows)
    if any(v[name] is not None for name in READERS):
        widgets.choice("no_answer")
    if v["w_lang"] is not None:
        widgets.select("script", format_func=lambda name: t(f"param.script.{name}"))


def draw(lens: Lens, bench: Bench) -> None:
    """Draw the picture and what belongs to it."""
    scores = scored(lens, bench)
    if scores is None:
        widgets.notice("rewards", "nothing")
        return
    widgets.picture(figures.scores(widgets.colors(), scores), "scores", alt=t("alt.scores"))
    use(scores)
    readings(lens, bench)
    r = scores.result
    widgets.readouts(
        [
            Readout("mean", plain(float(r.mean))),
            Readout("std", plain(float(r.std) if r.valid_count else None)),
            Readout("scored", t("readout.of", n=int(r.valid_count), total=len(bench.texts))),
            Readout("right_answers", right_text(scores)),
        ]
    )
    widgets.formula(formula(lens, scores))
    section, numbers = notice(scores)
    widgets.notice("rewards", section, **numbers)
    widgets.check_yourself("scores", lambda: question(lens, scores))
    widgets.take_away("rewards", "scores", lambda: snippet(lens, scores), lambda: table(scores))


def use(scores: Scores) -> None:
    """Draw the button that makes the bench the current group of every page."""

    def take() -> None:
        try:
            state.open_group(texts.as_group(scores.bench, list(scores.reports)))
        except ValueError as error:
            state.lab().errors["bench"] = ("", told(error))

    group = state.group()
    same = group.rewards == tuple(scores.totals) and group.prompt == scores.bench.prompt and bool(group.reward_parts)
    label = t("bench.is_group" if same else "bench.use")
    off = same or state.locked()
    st.button(label, icon=":material/groups:", key="bench-use", on_click=take, disabled=off, help=t("bench.use_help"))


def readings(lens: Lens, bench: Bench) -> None:
    """Draw what each reader took for the answer. The texts are a reader's own: a table shows them as they stand."""
    used = [name for name in READERS if lens.values[name] is not None]
    if not used:
        return
    columns: dict[str, list[str]] = {t("bench.column"): [str(i + 1) for i in range(len(bench.texts))]}
    for name in used:
        columns[t(f"param.{name}.label")] = [reading(text, READERS[name], bench.gold) for text in bench.texts]
    st.dataframe(columns, hide_index=True, width="stretch", key="bench-readings")


def reading(text: str, modes: Sequence[str], gold: str) -> str:
    """Return what a reader took for the answer and whether it is the gold one, or why it found none."""
    found = extract_answer(text, modes=modes)
    if found.answer is None:
        return t("bench.no_answer", problem=said(found.problem))
    if not gold.strip():
        return t("bench.read", answer=found.answer)
    return t("bench.read_right" if same_answer(found.answer, gold) else "bench.read_wrong", answer=found.answer)


def right_text(scores: Scores) -> str:
    """Return how many completions say the right answer."""
    known = [value for value in scores.right if value is not None]
    return t("readout.of", n=sum(known), total=len(known)) if known else "–"


def focus(scores: Scores) -> int:
    """Return the completion that the formula shows: the one with the highest reward."""
    return int(np.argmax([-np.inf if total is None else total for total in scores.totals]))


def formula(lens: Lens, scores: Scores) -> list[str]:
    """Return the total of one completion and its advantage, with numbers."""
    i = focus(scores)
    report = scores.reports[i]
    if report.reward is None:
        return [rf"R_{{{i + 1}}} &= \text{{unscored}} \quad\Longrightarrow\quad A_{{{i + 1}}} = 0"]
    terms = [
        rf"{latex(report.weights[name], 2)}\cdot {bracketed(value, 2)}"
        for name, value in report.parts.items()
        if value is not None
    ]
    total = rf"R_{{{i + 1}}} &= \sum_f w_f\, R_{{{i + 1},f}} = {' + '.join(terms)} = {latex(report.reward, sign=True)}"
    shown = look(texts.as_group(scores.bench, list(scores.reports)), lens.values)
    return [total, *formulas.advantage(shown, i)]


def notice(scores: Scores) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    best, totals, right = focus(scores), scores.totals, scores.right
    known = [total for total in totals if total is not None]
    numbers = {
        "best": str(best + 1), "reward": signed(totals[best], 2), "advantage": signed(scores.advantages[best], 2),
        "unscored": str(len(totals) - len(known)),
    }  # fmt: skip
    if not known:
        return "undecided", numbers
    if not scores.bench.gold.strip():
        return "no-gold", numbers
    if min(known) == max(known):
        return "flat", numbers
    if not right[best]:
        return ("hacked" if any(right) else "hacked-all-wrong"), numbers
    return _under_an_honest_best(scores, numbers, best, min(known))


def _under_an_honest_best(
    scores: Scores, numbers: dict[str, str], best: int, lowest: float
) -> tuple[str, dict[str, Any]]:
    """Return what else is wrong where the best completion is right."""
    rows = list(zip(scores.totals, scores.right, strict=True))
    tied = [i for i, (total, ok) in enumerate(rows) if total == scores.totals[best] and not ok]
    missed = [i for i, (total, ok) in enumerate(rows) if ok and total == lowest]
    less = [i for i, (total, ok) in enumerate(rows) if ok and total is not None and total < (scores.totals[best] or 0)]
    names = {"tied": tied, "missed": missed, "less": less}
    numbers = {**numbers, **{name: str(found[0] + 1) for name, found in names.items() if found}}
    if tied:
        return ("misread" if missed else "tied"), numbers
    if missed and _unseen(scores, missed[0]):
        return "missed", numbers
    if less:
        return "outweighed", numbers
    return ("some-unscored" if None in scores.totals else "honest"), numbers


def _unseen(scores: Scores, index: int) -> bool:
    """Return whether a verifier that reads answers found none, or another one, in a completion that is right."""
    readers = [name[2:] for name in READERS]
    parts = scores.reports[index].parts
    return any(parts[name] != 1.0 for name in readers if name in parts)


def question(lens: Lens, scores: Scores) -> Question:
    """Ask for one completion's total with the format verifier at weight 1."""
    with_format = {**lens.values, "w_fmt": 1.0}
    changed = scored(Lens(**{**lens.__dict__, "values": with_format}), scores.bench)
    i = next((k for k, total in enumerate(changed.totals) if total is not None), 0)  # type: ignore[union-attr]
    report = changed.reports[i]  # type: ignore[union-attr]
    value = float(report.reward or 0.0)
    numbers = {"number": i + 1, "format": plain(report.parts["fmt"], 0), "answer": signed(value, 2)}
    return Question(prose("rewards", "ask", **numbers), value, prose("rewards", "worked", **numbers))


def snippet(lens: Lens, scores: Scores) -> str:
    """Return Python that scores these completions."""
    lines = [
        f"    RewardComponent(verifier={c.verifier!r}, weight={c.weight!r}, name={c.name!r},\n"
        f"                    options={dict(c.options)!r}),"
        for c in scores.components
    ]
    listed = ",\n    ".join(repr(sample) for sample in samples(scores.bench))
    names, ending = _ending(lens, scores)
    return f"""from grpo_core import {", ".join(names)}
from grpo_core.rewards import RewardComponent, Sample, score_completions

samples = [
    {listed},
]
components = [
{chr(10).join(lines)}
]
reports = score_completions(samples, components)
for report in reports:
    print(report.reward, dict(report.parts))
{ending}"""


def _ending(lens: Lens, scores: Scores) -> tuple[list[str], str]:
    """Return the names and the lines that make advantages of the reports, by the group where its lengths count."""
    spec = code(lens.spec, AdvantageSpec())
    if plain_spec(lens.spec):
        lines = f"""rewards = as_rewards([report.reward for report in reports])
print(compute_advantages(rewards, {spec}).advantages)"""
        return ["AdvantageSpec", "as_rewards", "compute_advantages"], lines
    text = json.dumps(texts.as_group(scores.bench, list(scores.reports)).to_json(), separators=(",", ":"))
    lines = f"""group = Group.from_json({text!r})  # with these rewards
print(group.advantages({spec}, greedy_reward={float(lens.values["greedy"])!r}).advantages)"""
    return ["AdvantageSpec", "Group", *(["Whitening"] if lens.spec.whitening is not None else [])], lines


def table(scores: Scores) -> Table:
    """Return every score as data."""
    names = list(scores.reports[0].parts)
    rows = [
        (i + 1, scores.bench.texts[i], *("" if r.parts[n] is None else r.parts[n] for n in names),
         "" if r.reward is None else r.reward, float(scores.advantages[i]))
        for i, r in enumerate(scores.reports)
    ]  # fmt: skip
    return Table(("completion", "text", *names, "reward", "advantage"), rows)
