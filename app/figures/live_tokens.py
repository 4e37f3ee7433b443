"""What one step did to one completion: each token's probability before and after the update."""

from __future__ import annotations

from collections.abc import Sequence

from app.figures.base import Figure, Palette, Trace, axis, figure, note, safe
from app.figures.live import colored, house, text_color
from app.token_table import visible
from app.words import t

HEIGHT = 300
MOST = 60  # tokens that are drawn; of a longer completion those around the chosen one


def probabilities(
    colors: Palette,
    texts: Sequence[str],
    before: Sequence[float],
    after: Sequence[float],
    reference: Sequence[float] | None,
    *,
    chosen: int,
) -> Figure:
    """Return the probabilities of a completion's tokens as bars, with the chosen token in front of a band."""
    start = max(0, min(chosen - MOST // 2, len(texts) - MOST))
    part = slice(start, start + MOST)
    places = list(range(start, start + len(texts[part])))
    data = [
        _bars(places, before[part], colors.old, t("live.probability.before")),
        _bars(places, after[part], colors.current, t("live.probability.after")),
    ]
    names = [
        colored(t("live.probability.before"), colors.muted),
        colored(t("live.probability.after"), text_color(colors, "current")),
    ]
    if reference is not None:
        marks = {"symbol": "line-ew", "size": 12, "line": {"width": 2, "color": colors.reference}}
        data.append(
            {**_bars(places, reference[part], colors.reference, t("live.probability.reference")), "type": "scatter",
             "mode": "markers", "marker": marks}
        )  # fmt: skip
        names.append(colored(t("live.probability.reference"), text_color(colors, "reference")))
    here = {
        "type": "rect", "xref": "x", "yref": "paper", "x0": chosen - 0.5, "x1": chosen + 0.5, "y0": 0, "y1": 1,
        "layer": "below", "fillcolor": colors.grid, "opacity": 0.8, "line": {"width": 0},
    }  # fmt: skip
    place = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom", "yshift": 4}
    return figure(
        data,
        house(
            colors,
            height=HEIGHT,
            barmode="group",
            bargap=0.2,
            hovermode="x unified",
            margin={"l": 8, "r": 8, "t": 28, "b": 8},
            shapes=[here] if texts else [],
            annotations=[note("  ·  ".join(names), 0, 1, colors.muted, size=13, **place)],
            xaxis=axis(
                colors, t("live.axis.tokens"), tickvals=places, ticktext=[safe(visible(x), 12) for x in texts[part]],
                range=[start - 0.6, start + len(places) - 0.4], showgrid=False, zeroline=False,
            ),
            yaxis=axis(colors, t("live.axis.probability"), range=[0, 1.03], zeroline=False, nticks=5),
        ),
    )  # fmt: skip


def _bars(places: Sequence[int], values: Sequence[float], color: str, name: str) -> Trace:
    return {
        "type": "bar", "x": list(places), "y": list(values), "name": name, "marker": {"color": color},
        "hovertemplate": "%{y:.4f}",
    }  # fmt: skip
