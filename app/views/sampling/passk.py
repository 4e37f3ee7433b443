"""pass@k from n samples, and what a bootstrap of best-of-k says instead."""

from __future__ import annotations

from typing import Any

import numpy as np

from app import widgets
from app.figures import sampling as figures
from app.lens import Lens
from app.numbers import latex, plain
from app.widgets import Question, Readout, Table, slider
from app.words import prose, t
from grpo_core.sampling import best_of_k_bootstrap, pass_at_k


def counts(lens: Lens) -> tuple[int, int, int]:
    """Return samples, right ones and k; right ones and k are at most the samples."""
    v = lens.values
    samples = int(v["pk_n"])
    return samples, min(int(v["pk_c"]), samples), min(int(v["pk_k"]), samples)


def both(samples: int, right: int, k: int) -> tuple[float, float]:
    """Return pass@k and the bootstrap's best@k."""
    c = np.array([right])
    return float(pass_at_k(samples, c, k=k)[0]), float(best_of_k_bootstrap(samples, c, k=k)[0])


def settings(lens: Lens) -> None:
    """Draw the controls."""
    samples, right, k = counts(lens)
    rows = [slider("pk_n")]
    for name, value in (("pk_c", right), ("pk_k", k)):
        rows.append({**slider(name), "high": samples, "value": value, "text": str(value)})
    widgets.controls("pass", rows)


def draw(lens: Lens) -> None:
    """Draw the picture and what belongs to it."""
    samples, right, k = counts(lens)
    value, drawn = both(samples, right, k)
    xs, exact, bootstrap = curves(samples, right)
    figure = figures.pass_at_k(widgets.colors(), xs, exact, bootstrap, at=(k, value, drawn))
    widgets.picture(figure, "pass", alt=t("alt.pass"))
    widgets.readouts(
        [
            Readout("rate", plain(right / samples)),
            Readout("pass_at_k", plain(value)),
            Readout("bootstrap", plain(drawn)),
            Readout("gap", plain(value - drawn)),
        ]
    )
    widgets.formula(formula(samples, right, k))
    section, numbers = notice(samples, right, k)
    widgets.notice("sampling", section, **numbers)
    widgets.check_yourself("pass", question)
    widgets.take_away("sampling", "pass", lambda: snippet(samples, right, k), lambda: table(samples, right))


def curves(samples: int, right: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return every k with both values."""
    xs = np.unique(np.linspace(1, samples, min(samples, 48)).astype(int))
    pairs = [both(samples, right, int(k)) for k in xs]
    return xs, np.array([a for a, _ in pairs]), np.array([b for _, b in pairs])


def formula(samples: int, right: int, k: int) -> list[str]:
    """Return both formulas with numbers."""
    value, drawn = both(samples, right, k)
    return [
        rf"\mathrm{{pass@}}k &= 1 - \binom{{n-c}}{{k}}\Big/\binom{{n}}{{k}} ="
        rf" 1 - \binom{{{samples - right}}}{{{k}}}\Big/\binom{{{samples}}}{{{k}}} = {latex(value)}",
        rf"\text{{bootstrap}} &= 1 - \Big(1 - \frac{{c}}{{n}}\Big)^k ="
        rf" 1 - \Big(1 - \frac{{{right}}}{{{samples}}}\Big)^{{{k}}} = {latex(drawn)}",
    ]


def notice(samples: int, right: int, k: int) -> tuple[str, dict[str, Any]]:
    """Return the section to show, and the numbers in it."""
    value, drawn = both(samples, right, k)
    one, _ = both(samples, right, 1)
    numbers = {"pass": plain(value), "boot": plain(drawn), "k": str(k), "n": str(samples), "one": plain(one)}
    if right == 0:
        return "pass-none", numbers
    if k == samples:
        return "pass-all", numbers
    return ("pass-one" if k == 1 else "pass"), numbers


def question() -> Question:
    """Ask for the smallest telling case."""
    value, drawn = both(4, 1, 2)
    worked = prose("sampling", "worked-pass", answer=plain(value), boot=plain(drawn, 4))
    return Question(prose("sampling", "ask-pass"), value, worked)


def snippet(samples: int, right: int, k: int) -> str:
    """Return Python for both numbers."""
    return f"""import numpy as np
from grpo_core.sampling import best_of_k_bootstrap, pass_at_k

right = np.array([{right}])  # of {samples} completions of one prompt
print(pass_at_k({samples}, right, k={k})[0])
print(best_of_k_bootstrap({samples}, right, k={k})[0])"""


def table(samples: int, right: int) -> Table:
    """Return both curves as data."""
    rows = [(int(k), float(a), float(b)) for k, a, b in zip(*curves(samples, right), strict=True)]
    return Table(("k", "pass@k", "best@k by bootstrap"), rows)
