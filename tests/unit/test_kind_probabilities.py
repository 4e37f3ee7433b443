"""How likely each kind of group is: against every group listed, and against the closed form without missing scores."""

import itertools

import numpy as np
import pytest

from grpo_core import group_kind, kind_probabilities, mixed_group_probability
from grpo_core.advantages import KINDS


@pytest.mark.parametrize(
    ("p", "size", "u"), [(0.3, 3, 0.2), (0.8, 4, 0.5), (0.5, 2, 0.9), (0.0, 3, 0.1), (1.0, 1, 0.3)]
)
def test_against_every_group_listed(p, size, u):
    expected = dict.fromkeys(KINDS, 0.0)
    chances = {1.0: (1 - u) * p, 0.0: (1 - u) * (1 - p), None: u}
    for rewards in itertools.product(chances, repeat=size):
        expected[group_kind(list(rewards))] += float(np.prod([chances[r] for r in rewards]))
    found = kind_probabilities(p, size, unscored=u)
    assert {kind: float(x) for kind, x in found.items()} == pytest.approx(expected, abs=1e-14)


def test_without_missing_scores_it_is_the_mixed_probability(backend):
    p = backend.array([0.0, 0.2, 0.5, 0.99, 1.0])
    found = kind_probabilities(p, 8)
    backend.check(found["mixed"], np.asarray(mixed_group_probability(np.array([0.0, 0.2, 0.5, 0.99, 1.0]), 8)))
    backend.check(sum(found.values()), np.ones(5))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"p": 1.2, "group_size": 4}, "p must be a probability"),
        ({"p": 0.5, "group_size": 0}, "group_size"),
        ({"p": 0.5, "group_size": 4, "unscored": -0.1}, "unscored"),
    ],
)
def test_bad_input_is_named(arguments, says):
    with pytest.raises(ValueError, match=says):
        kind_probabilities(arguments.pop("p"), arguments.pop("group_size"), **arguments)
