"""Temperature, top-k and top-p: what tokens are drawn with, and the ratio that divides by something else."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from app import widgets
from app.figures import sampling as figures
from app.lens import Lens, distributions
from app.numbers import MINUS, latex, plain, short
from app.widgets import Question, Readout, Table, slider
from app.words import prose, t
from grpo_core.sampling import SamplingMismatch, sampling_mismatch


@dataclass(frozen=True)
class Drawn:
    """A next-token distribution (V,) with how it is sampled from and how the trainer sees it."""

    probs: np.ndarray
    temperature: float
    top_k: int | None
    top_p: float | None
    trained_temperature: float
    tokens: int

    @cached_property
    def result(self) -> SamplingMismatch:
        """Both distributions and their ratio."""
        with np.errstate(divide="ignore"):
            logits = np.log(self.probs)
        return sampling_mismatch(
            logits, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p,
            trained_temperature=self.trained_temperature,
        )  # fmt: skip

    @property
    def sequence(self) -> float:
        """The typical ratio of a whole completion."""
        return float(self.result.sequence_ratio(self.tokens))

    @property
    def focus(self) -> int:
        """The token that is drawn most often."""
        return int(np.argmax(self.result.sampled))


def drawn(lens: Lens) -> Drawn:
    """Return what the settings describe."""
    v = lens.values
    probs = distributions(v["probs"], v["probs"]).current
    return Drawn(probs, v["temp"], v["top_k"], v["top_p"], v["t_temp"], int(v["seq_n"]))


def power(value: float) -> str:
    """Return a ratio for LaTeX, as `ratio_text`."""
    mantissa, _, exponent = ratio_text(value).replace(MINUS, "-").partition("e")
    return rf"{mantissa}\times 10^{{{exponent}}}" if exponent else mantissa


def ratio_text(value: float) -> str:
    """Return a ratio; one that is next to nothing as a power of ten, never as 0."""
    return f"{value:.1e}".replace("e-0", "e-").replace("-", MINUS) if 0 < value < 5e-4 else plain(value)


def names(count: int) -> list[str]:
    """Return the tokens' names."""
    return [chr(ord("A") + i) for i in range(count)]


def settings(lens: Lens) -> None:
    """Draw the controls."""
    one, amber = drawn(lens), widgets.colors().entropy
    how = [
        {**slider("temp"), "wide": True, "color": amber},
        {**slider("top_k", value=len(one.probs)), "high": len(one.probs), "wide": True},
        {**slider("top_p", value=0.8), "wide": True},
        {**slider("t_temp"), "wide": True, "color": widgets.colors().current}, {**slider("seq_n"), "wide": True},
    ]  # fmt: skip
    rows = widgets.cell_rows("probs", [t("control.token", name=name) for name in names(len(one.probs))])
    for row, p in zip(rows, one.probs, strict=True):
        row["unit"] = "" if abs(row["value"] - p) < 5e-4 else t("control.normalised", p=f"{p:.3f}")
    widgets.controls("temperature", [*how, *rows, widgets.count_row(["probs"], t("control.tokens"))], two=True)


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    one = drawn(lens)
    r = one.result
    colors = widgets.colors()
    figure = figures.mismatch(colors, r.trained, r.sampled, r.ratio, names(len(one.probs)))
    widgets.picture(figure, "mismatch", alt=t("alt.mismatch"))
    figure = figures.sequence(colors, *curve(one), at=(one.tokens, one.sequence), text=ratio_text(one.sequence))
    widgets.picture(figure, "sequence", alt=t("alt.sequence"))
    widgets.readouts(
        [
            Readout("token_ratio", plain(float(r.ratio[one.focus]))),
            Readout("kept_mass", plain(float(r.mean_ratio))),
            Readout("log_ratio", plain(float(r.mean_log_ratio))),
            Readout("sequence_ratio", ratio_text(one.sequence)),
        ]
    )
    widgets.formula(formula(one))
    section, numbers = notice(one)
    widgets.notice("sampling", section, **numbers)
    widgets.check_yourself("temperature", question)
    widgets.take_away("sampling", "mismatch", lambda: snippet(one), lambda: table(one))


def curve(one: Drawn) -> tuple[np.ndarray, np.ndarray]:
    """Return lengths and the typical ratio at each."""
    lengths = np.unique(np.linspace(0, max(one.tokens, 10), 41).astype(int))
    return lengths, np.array([float(one.result.sequence_ratio(int(n))) for n in lengths])


def formula(one: Drawn) -> list[str]:
    """Return the ratio of the token in focus, and of a completion, with numbers."""
    r, i = one.result, one.focus
    name = names(len(one.probs))[i]
    trained, sampled = float(r.trained[i]), float(r.sampled[i])
    return [
        rf"r_{{{name}}} &= \frac{{\pi_{{\text{{trainer}}}}({name})}}{{\pi_{{\text{{sampler}}}}({name})}} ="
        rf" \frac{{{latex(trained)}}}{{{latex(sampled)}}} = {latex(float(r.ratio[i]))}",
        rf"\text{{typical over }} n \text{{ tokens}} &= e^{{\,n\,\mathbb{{E}}[\log r]}} ="
        rf" e^{{{one.tokens}\cdot({latex(float(r.mean_log_ratio))})}} = {power(one.sequence)}",
    ]


def notice(one: Drawn) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    r = one.result
    never = int(np.sum((r.sampled == 0) & (r.trained > 1e-12)))
    numbers = {
        "ratio": plain(float(r.ratio[one.focus])), "n": str(one.tokens), "sequence": ratio_text(one.sequence),
        "kept": plain(float(r.mean_ratio), 3), "never": str(never), "high": plain(float(r.ratio.max()), 2),
        "low": plain(float(r.ratio[r.sampled > 0].min()), 2), "temp": short(one.temperature),
        "trained": short(one.trained_temperature),
    }  # fmt: skip
    if np.allclose(r.sampled, r.trained, atol=1e-9):
        return "temperature-same", numbers
    if np.sum(r.sampled > 0) == 1:
        return "temperature-greedy", numbers
    if never:
        return ("temperature-cut" if one.temperature == one.trained_temperature else "temperature-both"), numbers
    return "temperature-scaled", numbers


def question() -> Question:
    """Ask for the sequence ratio of a short completion under top-p."""
    one = Drawn(np.array([0.5, 0.3, 0.15, 0.05]), 1.0, None, 0.8, 1.0, 10)
    worked = prose("sampling", "worked-temperature", answer=plain(one.sequence))
    return Question(prose("sampling", "ask-temperature"), one.sequence, worked)


def snippet(one: Drawn) -> str:
    """Return Python for the ratios."""
    return f"""import numpy as np
from grpo_core.sampling import sampling_mismatch

probs = np.array({one.probs.tolist()})
with np.errstate(divide="ignore"):
    logits = np.log(probs)
mismatch = sampling_mismatch(logits, temperature={one.temperature!r}, top_k={one.top_k}, top_p={one.top_p},
                             trained_temperature={one.trained_temperature!r})
print("drawn with", mismatch.sampled, "trained as", mismatch.trained)
print("ratio", mismatch.ratio, "over {one.tokens} tokens", mismatch.sequence_ratio({one.tokens}))"""


def table(one: Drawn) -> Table:
    """Return the tokens as data."""
    columns = (one.probs, one.result.sampled, one.result.trained, one.result.ratio)
    rows = [(name, *(float(c[i]) for c in columns)) for i, name in enumerate(names(len(one.probs)))]
    return Table(("token", "model", "drawn with", "trained as", "ratio"), rows)
