"""A live group under the microscope: its tokens as a heat picture, one token in the formula, what the step did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import streamlit as st

from app import walk
from app.components import component
from app.figures import live_tokens as figures
from app.lens import Lens
from app.live.heat import QUANTITIES, fact_rows, heat_of, step_ends, step_words, values_of
from app.live.tokens import AFTER, BEFORE, StepLoss, step_loss
from app.live_plot import live_plot
from app.numbers import plain
from app.token_table import Heat, Place, table_data, visible
from app.widgets import colors, formula, literal
from app.words import language, prose, t
from grpo_core import importance_ratio
from grpo_core.aggregation import sequence_sum
from grpo_core.live.config import RunConfig

HEAT, MOMENT, PLACE, SEEN, TABLE = "live-heat", "live-moment", "live-place", "live-place-seen", "live-tokens"
BY_STEP = ("pull", "advantage")
"""What is explained in other words where every step of a completion has a reward."""
MOST_FACTS = 700  # tokens up to which hovering over one says everything about it


def loss_of(config: RunConfig, found: Mapping[str, Any]) -> StepLoss:
    """Return the loss of a step: computed once for all viewers. ValueError if it cannot be computed again."""
    loss: StepLoss = _once(found, "loss", lambda: step_loss(found, config))
    return loss


def _once(found: Mapping[str, Any], name: Any, make: Callable[[], Any]) -> Any:
    """Return what `make` gives, made once for all viewers of a step."""
    memo = found["memo"]
    if name not in memo:
        memo[name] = make()
    return memo[name]


def choice() -> str:
    """Draw the choice of what colours the tokens, and return it."""
    chosen = st.selectbox(
        t("live.heat.label"), list(QUANTITIES), key=HEAT, format_func=lambda name: t(f"live.heat.{name}"),
        help=t("live.heat.help"), persist_state="session",
    )  # fmt: skip
    return chosen or next(iter(QUANTITIES))


def table(
    step: StepLoss, config: RunConfig, found: Mapping[str, Any], index: int, name: str, *, hold: Callable[[], None]
) -> Place | None:
    """Draw the group's tokens coloured by a quantity and return the chosen one; a press calls `hold` first."""
    values = values_of(name, step, index)
    if values is None:
        st.caption(t("live.heat.missing"))
        return None
    heat, group = heat_of(name, values), found["groups"][index]
    place = _place(step.lens(index, AFTER), values_of("pull", step, index))
    st.caption(_words(step, config, name, heat))
    which = ("table", index, name, place, language())
    data = dict(_once(found, which, lambda: _data(step, group, index, heat, place)))
    data.update(_looks(name, data), words=_table_words(group))

    def picked() -> None:
        pick = st.session_state[TABLE].get("pick")
        if isinstance(pick, dict):
            st.session_state[PLACE] = (int(pick.get("completion", 0)), int(pick.get("position", 0)))
            st.session_state[SEEN] = int(pick.get("at", 0))
            hold()

    mount = component("token_table", '<div class="token-table"></div>', isolate=False)
    mount(key=TABLE, data=data, on_pick_change=picked)
    return place


def _looks(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table's colours, the lower end of their scale, and what else does not depend on the tokens."""
    own, color, low = colors(), QUANTITIES[name].color, data["low"]
    tint = {"up": own.up, "down": own.down, "page": own.page, "ink": own.ink}
    if color is not None:
        tint |= {"up": getattr(own, color), "down": getattr(own, color)}
        low = "0"
    seen = st.session_state.get(SEEN, 0)
    return {"colors": tint, "low": low, "seen": seen, "file": f"grpo-lab-{TABLE}", "label": t("tokens.label")}


def _table_words(group: Mapping[str, Any]) -> dict[str, str]:
    """Return the words of the table; those of steps where the completions were judged in steps."""
    words = {word: t(f"tokens.{word}") for word in ("earlier", "later", "empty", "saturated", "masked")}
    if step_ends(group):
        words |= {"step_end": t("live.heat.step_end"), "steps": t("live.heat.steps")}
    return words


def _data(step: StepLoss, group: Mapping[str, Any], index: int, heat: Heat, place: Place | None) -> dict[str, Any]:
    """Return the table as the browser wants it, with everything about each token where there are not too many."""
    data = table_data(step.lens(index, AFTER), heat, place, hint=t("live.heat.hint"))
    ends = step_ends(group)
    for row, own in zip(data["rows"], ends, strict=False):
        row["ends"] = [own.get(k, "") for k in _shown(row)]
    if sum(row["total"] for row in data["rows"]) <= MOST_FACTS:
        names, rows = fact_rows(step, index)
        data["fact_names"] = [t(f"live.heat.{name}") for name in names]
        for row, facts in zip(data["rows"], rows, strict=True):
            row["facts"] = [facts[k] for k in _shown(row)]
        _add_steps(data, ends)
    return data


def _add_steps(data: dict[str, Any], ends: Sequence[Mapping[int, str]]) -> None:
    """Add to what is said of each token the step that it belongs to."""
    if ends:
        data["fact_names"] = [t("live.heat.step"), *data["fact_names"]]
        for row, own in zip(data["rows"], ends, strict=True):
            row["facts"] = [[step_words(own, k), *facts] for k, facts in zip(_shown(row), row["facts"], strict=True)]


def _shown(row: Mapping[str, Any]) -> range:
    """Return the positions of the tokens that a row shows."""
    return range(row["from"], row["from"] + len(row["texts"]))


def _place(lens: Lens, pull: np.ndarray | None) -> Place | None:
    """Return the chosen token if the group has it, else the one with the largest pull."""
    wanted = st.session_state.get(PLACE)
    rows = lens.group.tokens
    if wanted and 0 <= wanted[0] < len(rows) and 0 <= wanted[1] < len(rows[wanted[0]]):
        return int(wanted[0]), int(wanted[1])
    if pull is None or not pull.size or not any(rows):
        return None
    place = np.unravel_index(int(np.nan_to_num(np.abs(pull)).argmax()), pull.shape)
    return int(place[0]), int(place[1])


def _words(step: StepLoss, config: RunConfig, name: str, heat: Heat) -> str:
    """Return what the colours mean, and what keeps them from meaning it."""
    if name == "pull" and heat.reach == 0.0:
        return t("live.nothing_to_push")
    by_step = config.supervision == "process" and name in BY_STEP
    section = f"heat-{name}-steps" if by_step else f"heat-{name}"
    words = prose("live", section, reach=heat.text(heat.reach) if heat.reach else "0")
    if config.fault == "shared_graph" and name in ("pull", "contribution"):
        words += " " + t("live.heat.shared_graph")
    return words


def one(step: StepLoss, found: Mapping[str, Any], index: int, place: Place) -> None:
    """Draw one token's way through the formula, and what the step did to its completion."""
    lens, (completion, position) = step.lens(index, AFTER), place
    token = literal(visible(lens.group.tokens[completion][position]))
    st.markdown(f"**{t('live.token.chosen', number=completion + 1, position=position + 1)}** {token}")
    left, right = st.columns([1.45, 1], gap="medium")  # the pull's line fits at 1280 pixels
    with left:
        moment = st.segmented_control(
            t("live.moment"), (BEFORE, AFTER), key=MOMENT, default=BEFORE, required=True, persist_state="session",
            format_func=lambda name: t(f"live.moment.{name}"), label_visibility="collapsed",
        )  # fmt: skip
        seen = step.lens(index, moment or BEFORE)
        formula(walk.lines(seen, walk.chain(seen, completion, position)))
    with right:
        _probabilities(lens, found, index, place)


def _probabilities(lens: Lens, found: Mapping[str, Any], index: int, place: Place) -> None:
    completion, position = place
    batch, size = lens.terms.batch, len(lens.group.tokens[completion])
    ends = (step_ends(found["groups"][index]) or [{}] * lens.group.size)[completion]
    rows = {
        name: None if values is None else np.exp(values[completion, :size]).tolist()
        for name, values in (("before", batch.old_logp), ("after", batch.logp), ("reference", batch.ref_logp))
    }
    palette = colors()
    texts = lens.group.tokens[completion]
    figure = figures.probabilities(
        palette, texts, rows["before"] or [], rows["after"] or [], rows["reference"], chosen=position, ends=ends
    )
    ratio = float(importance_ratio(batch.logp, batch.old_logp, batch.mask, level="trajectory")[completion, 0])
    sums = [float(sequence_sum(values, batch.mask)[completion, 0]) for values in (batch.old_logp, batch.logp)]
    said = t("live.probability.whole", ratio=plain(ratio), before=plain(sums[0], 2), after=plain(sums[1], 2))
    version = (found["step"], index, place, palette.page, language())
    live_plot(figure, key="live-probabilities", version=version, alt=said)
    st.caption(said)
