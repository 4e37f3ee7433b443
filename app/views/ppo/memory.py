"""The models that PPO, DPO and GRPO hold in memory, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app import widgets
from app.figures import ppo as figures
from app.lens import Lens
from app.numbers import latex, plain, short
from app.widgets import Question, Readout, Table, slider
from app.words import prose, t
from grpo_core.memory import METHODS, PRECISIONS, ModelMemory, training_memory

GIGA = 1e9


def sizes(lens: Lens) -> dict[str, float]:
    """Return each role's number of parameters; a size that is not set is the policy's."""
    v = lens.values
    own = {"policy": v["mem_p"], "reference": v["mem_p"], "reward": v["mem_r"], "value": v["mem_v"]}
    return {role: (v["mem_p"] if size is None else size) * GIGA for role, size in own.items()}


def models(lens: Lens, method: str) -> list[ModelMemory]:
    """Return what each model of a method takes."""
    return training_memory(method, sizes(lens), precision=lens.values["mem_prec"])


def total(lens: Lens, method: str) -> float:
    """Return a method's gigabytes."""
    return sum(model.total for model in models(lens, method)) / GIGA


def parts(lens: Lens, methods: Sequence[str]) -> list[list[tuple[str, str, float]]]:
    """Return each method's (role, part, gigabytes)."""
    return [
        [
            (model.role, part, getattr(model, part) / GIGA)
            for model in models(lens, method)
            for part in ("weights", "gradients", "optimizer")
            if getattr(model, part)
        ]
        for method in methods
    ]


def settings(lens: Lens) -> None:
    """Draw the controls."""
    own = lens.values["mem_p"]
    rows = [slider("mem_p"), slider("mem_v", value=own), slider("mem_r", value=own)]
    widgets.controls("memory", rows)
    widgets.choice("mem_prec")


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    names = [t(f"method.{method}") for method in METHODS]
    figure = figures.memory(widgets.colors(), names, parts(lens, tuple(METHODS)))
    widgets.picture(figure, "memory", alt=t("alt.memory"))
    ppo, grpo = total(lens, "ppo"), total(lens, "grpo_model")
    widgets.readouts(
        [
            Readout("memory_ppo", gigabytes(ppo)),
            Readout("memory_grpo", gigabytes(grpo)),
            Readout("memory_saved", t("readout.percent", value=plain(100 * (1 - grpo / ppo), 0))),
            Readout("memory_free", gigabytes(total(lens, "grpo_free"))),
        ]
    )
    widgets.formula(formula(lens))
    widgets.notice("ppo", "memory-small" if small_critic(lens) else "memory", **notice(lens))
    widgets.check_yourself("memory", lambda: question(lens))
    widgets.take_away("ppo", "memory", lambda: snippet(lens), lambda: table(lens))


def gigabytes(value: float) -> str:
    """Return gigabytes as text."""
    return t("unit.gb", value=plain(value, 0 if value >= 100 else 1))


def small_critic(lens: Lens) -> bool:
    """Return whether the critic is much smaller than the policy."""
    return sizes(lens)["value"] < 0.5 * sizes(lens)["policy"]


def formula(lens: Lens) -> list[str]:
    """Return PPO's and GRPO's memory, term by term."""
    each = PRECISIONS[lens.values["mem_prec"]]
    trained = short(each.weights + each.gradients + each.master + each.adam)
    frozen = short(each.weights)
    p = {role: latex(size / GIGA, 1) for role, size in sizes(lens).items()}
    start = rf"{trained}\cdot {p['policy']} + {frozen}\cdot {p['reference']} + {frozen}\cdot {p['reward']}"
    return [
        r"M &= \sum_{\text{trained}} (w + g + m + a)\,N + \sum_{\text{frozen}} w\,N",
        rf"M_{{\mathrm{{PPO}}}} &= {start} + {trained}\cdot {p['value']} = {latex(total(lens, 'ppo'), 1)}\ \text{{GB}}",
        rf"M_{{\mathrm{{GRPO}}}} &= {start} = {latex(total(lens, 'grpo_model'), 1)}\ \text{{GB}}",
    ]


def notice(lens: Lens) -> dict[str, Any]:
    """Return the numbers of what to notice."""
    by_role = {model.role: model.total / GIGA for model in models(lens, "ppo")}
    return {
        "critic": gigabytes(by_role["value"]), "frozen": gigabytes(by_role["reference"]),
        "share": plain(100 * by_role["value"] / sum(by_role.values()), 0),
    }  # fmt: skip


def question(lens: Lens) -> Question:
    """Ask what a trained 1 billion parameter model takes."""
    model = training_memory("grpo_free", {"policy": GIGA}, precision=lens.values["mem_prec"])[0]
    value = model.total / GIGA
    each = PRECISIONS[lens.values["mem_prec"]]
    numbers = {name: short(getattr(each, name)) for name in ("weights", "gradients", "master", "adam")}
    return Question(prose("ppo", "ask-memory"), value, prose("ppo", "worked-memory", answer=short(value), **numbers))


def snippet(lens: Lens) -> str:
    """Return Python for every method's memory."""
    return f"""from grpo_core.memory import METHODS, training_memory

parameters = {sizes(lens)!r}
for method in METHODS:
    models = training_memory(method, parameters, precision={lens.values["mem_prec"]!r})
    print(method, sum(model.total for model in models) / 1e9, "GB", [model.role for model in models])"""


def table(lens: Lens) -> Table:
    """Return every model of every method."""
    rows = [
        (method, m.role, m.weights / GIGA, m.gradients / GIGA, m.optimizer / GIGA, m.total / GIGA)
        for method in METHODS
        for m in models(lens, method)
    ]
    return Table(("method", "model", "weights GB", "gradients GB", "optimizer GB", "total GB"), rows)
