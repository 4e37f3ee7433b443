"""Arrays that hypothesis may choose: groups of rewards, and ragged batches of log-probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

REWARDS = st.one_of(
    st.sampled_from([0.0, 0.1, 0.2, 0.5, 1.0]),  # verifiers' scores, with many ties
    st.floats(-100, 100).map(lambda x: round(x, 3)),
)


def reward_rows(
    *, groups: int | None = None, min_size: int = 1, max_size: int = 9, unscored: bool = False
) -> st.SearchStrategy[np.ndarray]:
    """Return rewards (groups, G); nan is unscored."""
    values = st.one_of(REWARDS, st.just(float("nan"))) if unscored else REWARDS
    counts = st.just(groups) if groups else st.integers(1, 4)
    return st.tuples(counts, st.integers(min_size, max_size)).flatmap(
        lambda shape: st.lists(values, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]).map(
            lambda flat: np.array(flat).reshape(shape)
        )
    )


@st.composite
def batches(draw: Any, *, max_rows: int = 5, max_width: int = 6, equal_lengths: bool = False) -> dict[str, Any]:
    """Return the arrays of one batch, ragged, off-policy, with some empty completions and holes in the mask."""
    rows, width = draw(st.integers(1, max_rows)), draw(st.integers(1, max_width))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lengths = np.full(rows, width) if equal_lengths else rng.integers(0, width + 1, rows)
    mask = np.arange(width)[None] < lengths[:, None]
    if not equal_lengths and draw(st.booleans()):
        mask &= rng.random((rows, width)) < 0.8
    logp = -rng.uniform(0.02, 4.0, (rows, width))
    gap = rng.normal(0, draw(st.sampled_from([0.0, 0.05, 0.5, 2.0])), (rows, width))
    return {
        "logp": logp,
        "old_logp": logp - gap,
        "ref_logp": logp - rng.normal(0, 0.7, (rows, width)),
        "mask": mask,
        "advantages": rng.choice([-1.0, 0.0, 1.0], rows) * rng.uniform(0.1, 3, rows),
        "entropy": rng.uniform(0, 2, (rows, width)),
        "uniform": rng.random((rows, width)),
    }
