"""The padded batch: which cells are prompt, own token, EOS or padding, and what dropping truncated completions does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from app import editing, formulas, snippets, widgets
from app import lens as lenses
from app.explain import reduction as explain
from app.figures import reduction_masks as figures
from app.lens import Lens
from app.numbers import plain, signed
from app.views.reduction import tokens
from app.widgets import Question, Readout, Table, slider
from app.words import prose, t
from grpo_core import token_weights


@dataclass(frozen=True)
class Padded:
    """The group with its completions cut at the limit, seen through the settings, and how it was before the cut."""

    lens: Lens
    before: Lens

    @property
    def dropped(self) -> list[int]:
        """Completions that have tokens and train none of them."""
        return [i for i, n in enumerate(self.lens.trained) if not n and self.lens.group.tokens[i]]

    @property
    def empty(self) -> list[int]:
        """Completions without a token."""
        return [i for i, row in enumerate(self.lens.group.tokens) if not row]

    @property
    def truncated(self) -> int:
        """How many completions were cut at a length limit."""
        return sum(self.lens.group.truncated)

    @property
    def saturated(self) -> int:
        """How many tokens' ratios left the clip range on the side that ends their pull."""
        return int((np.asarray(self.lens.terms.saturated) & np.asarray(self.lens.terms.mask)).sum())


def padded(lens: Lens) -> Padded:
    """Return the group cut at the limit of the settings."""
    limit = lens.values["limit"]
    if limit is None or limit >= max(map(len, lens.group.tokens)):
        return Padded(lens, lens)
    return Padded(lenses.look(editing.cut_at(lens.group, int(limit)), lens.values), lens)


def settings(lens: Lens) -> None:
    """Draw the length limit, what happens to truncated completions, the rule, and the lengths."""
    longest = max(1, *map(len, lens.group.tokens)) if lens.group.size > 1 else max(1, len(lens.group.tokens[0]))
    limit = slider("limit", value=longest, text=t("control.no_limit"))
    limit.update(high=max(2, longest))
    widgets.controls("reduction-masks", [limit, *widgets.length_rows()])
    widgets.choice("cut")
    tokens.rule(lens)


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    own = padded(lens)
    shown = own.lens
    widgets.picture(figures.padded(widgets.colors(), rows(own)), "masks", alt=t("alt.masks"))
    total = sum(map(len, shown.group.tokens))
    widgets.readouts(
        [
            Readout("loss", signed(float(shown.terms.loss))),
            Readout("trained", t("readout.of", n=sum(shown.trained), total=total)),
            Readout("truncated", t("readout.of", n=own.truncated, total=shown.group.size)),
            Readout("clipped_tokens", t("readout.of", n=own.saturated, total=sum(shown.trained))),
        ]
    )
    widgets.formula(formula(own))
    section, numbers = notice(own)
    widgets.notice("reduction", section, **numbers)
    st.caption(prose("reduction", "truncated"))
    widgets.see_also("rewards", "curve")
    widgets.check_yourself("masks", question)
    widgets.take_away("reduction-masks", "masks", lambda: snippets.loss(shown), lambda: table(own))


def rows(own: Padded) -> list[figures.Row]:
    """Return each completion as a row of the padded batch."""
    shown, result = own.lens, []
    for i, texts in enumerate(shown.group.tokens):
        finish = (shown.group.finish or ())[i]
        weights = shown.row(shown.terms.weights, i)
        result.append(
            figures.Row(
                texts, shown.row(shown.terms.mask, i), float(shown.advantages[i]), finish,
                float(weights.max()) if weights.size else 0.0, i in own.dropped,
            )
        )  # fmt: skip
    return result


def formula(own: Padded) -> list[str]:
    """Return the weights with their denominators, and a dropped and an empty completion's, with numbers."""
    shown = own.lens
    lines = formulas.reduction(shown, explain.extremes(shown), explain.constant(shown))
    zero = [rf"w_{{{own.dropped[0] + 1},t}} &= 0 \quad\text{{(truncated and dropped)}}"] if own.dropped else []
    if own.empty:
        zero.append(rf"w_{{{own.empty[0] + 1},t}} &: \text{{no token, so no weight (and no 0/0)}}")
    return [*lines[:-1], *zero, denominator(shown), lines[-1]]


def denominator(shown: Lens) -> str:
    """Return what the rule divides by."""
    size, total = shown.group.size, sum(shown.trained)
    mode = shown.objective.aggregation
    if mode == "token_mean":
        kept = " + ".join(str(n) for n in shown.trained[:8]) + (r" + \dots" if size > 8 else "")
        return rf"\sum_j |o_j| &= {kept} = {total} \quad\text{{(only tokens that train)}}"
    return rf"B &= {size} \quad\text{{(every completion, trained or not)}}" if mode != "token_sum" else r"1 &= 1"


def notice(own: Padded) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    shown, mode = own.lens, own.lens.objective.aggregation
    numbers = {
        "truncated": str(own.truncated), "size": str(shown.group.size), "tokens": str(sum(shown.trained)),
        "all": str(sum(shown.lengths)), "loss": signed(float(shown.terms.loss)), "empty": str(len(own.empty)),
        "weight": plain(explain.heaviest(shown)[0], 4),
    }  # fmt: skip
    if not sum(shown.trained):
        return ("masks-all" if own.dropped else "nothing"), numbers
    if own.dropped:
        return ("masks-dropped-tokens" if mode == "token_mean" else "masks-dropped"), numbers
    if own.empty:
        return "masks-empty", numbers
    return ("masks-kept" if own.truncated else "masks"), numbers


def question() -> Question:
    """Ask for a weight when one of four completions is dropped."""
    mask = np.arange(5)[None, :] < np.array([[5], [5], [0], [5]])
    value = float(token_weights(mask, mode="sequence_mean")[0, 0])
    return Question(
        prose("reduction", "ask-masks"), value, prose("reduction", "worked-masks", answer=plain(value, 3)),
        tolerance=0.001,
    )  # fmt: skip


def table(own: Padded) -> Table:
    """Return every cell of the completions as data."""
    shown, data = own.lens, []
    for i, row in enumerate(rows(own)):
        weights = shown.row(shown.terms.weights, i)
        data += [
            (i + 1, k + 1, text, figures.state_of(row, k), float(w))
            for k, (text, w) in enumerate(zip(row.tokens, weights, strict=True))
        ]
    return Table(("completion", "position", "token", "state", "weight"), data)
