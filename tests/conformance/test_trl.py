"""Our loss against TRL's own, value and gradient, for every setting of the table in trl_cases."""

import dataclasses

import numpy as np
import pytest

from grpo_core import RECIPES, batch_statistics, loss_terms
from tests.conformance.oracle import compute_loss
from tests.conformance.trl_cases import (
    CLIPPED,
    LOSS_TYPES,
    Case,
    cases,
    differences,
    make_batch,
    make_data,
    objective_for,
    our_answer,
)

pytest.importorskip("trl", reason="TRL is in requirements-test.txt")

TABLE = cases()


def label(case):
    return f"{case.loss_type}: {case.name}"


@pytest.mark.parametrize("case", TABLE, ids=label)
def test_value_and_gradient_in_float64(case):
    value, gradient = differences(case)
    assert value < 1e-10
    assert gradient < 1e-10


@pytest.mark.parametrize("case", TABLE, ids=label)
def test_value_and_gradient_as_trl_runs(case):
    """With torch's float32 default TRL rounds a few numbers (SAPO's temperatures, an accumulation of 3) to float32."""
    value, gradient = differences(case, precision="float32", seeds=2)
    assert value < 1e-6
    assert gradient < 1e-6


def test_the_table_has_every_loss_type_that_trl_knows():
    """TRL raises for a loss type that it does not know: the message of its source names none, so ask it."""
    data = make_data(Case("", {"loss_type": "grpo"}), 0)
    for loss_type in LOSS_TYPES:
        compute_loss(data, {"loss_type": loss_type})
    with pytest.raises(ValueError, match="Unknown loss type"):
        compute_loss(data, {"loss_type": "another"})
    assert {case.loss_type for case in TABLE} >= {name.removeprefix("trl_") for name in RECIPES if "trl" in name} - {
        "gspo"
    }


def test_gspo_is_grpo_at_sequence_level():
    recipe = RECIPES["trl_gspo"].objective
    settings = {"loss_type": "grpo", "level": "sequence", "epsilon_low": 3e-4, "epsilon_high": 4e-4}
    assert objective_for(Case("", settings)).replace(entropy_aggregation=None) == recipe


class TestTheComparisonCanFail:
    """The same comparison notices each of the mistakes that it is there to find."""

    @pytest.mark.parametrize(
        ("settings", "mistake"),
        [
            ({}, {"epsilon_high": 0.21}),
            ({}, {"epsilon_low": 0.19}),
            ({"beta": 0.04}, {"kl_ratio_weighted": False}),
            ({"beta": 0.04}, {"kl_estimator": "k2"}),
            ({"delta": 1.5}, {"delta": 1.6}),
            ({"level": "sequence"}, {"ratio_level": "trajectory"}),
            ({"top_entropy_quantile": 0.5}, {"top_entropy_quantile": 0.6}),
            ({}, {"aggregation": "token_mean"}),
        ],
    )
    def test_a_wrong_choice_is_seen(self, settings, mistake):
        case = Case("", {"loss_type": "grpo", **settings})
        data = make_data(case, 0)
        theirs = compute_loss(data, case.settings)
        ours = float(loss_terms(make_batch(case, data), objective_for(case).replace(**mistake)).loss)
        assert abs(ours - theirs.loss) / abs(theirs.loss) > 1e-5


class TestMasksTwoWays:
    @pytest.mark.parametrize("loss_type", LOSS_TYPES)
    def test_mask_truncated_is_what_trl_does_to_its_mask(self, loss_type):
        case = Case("", {"loss_type": loss_type, "beta": 0.04}, {"truncated": True})
        data = make_data(case, 3)
        whole = dataclasses.replace(data, mask=make_data(Case("", case.settings), 3).mask)
        truncated = ~data.mask.any(axis=1)
        batch = dataclasses.replace(make_batch(case, whole), truncated=truncated)
        ours = loss_terms(batch, objective_for(case).replace(mask_truncated=True)).loss
        np.testing.assert_allclose(ours, compute_loss(data, case.settings).loss, rtol=1e-12)

    @pytest.mark.parametrize("trainer", ["gmpo", "rloo"])
    def test_an_empty_completion_has_no_term(self, trainer):
        """GMPO and RLOO of TRL keep its constant, ratio 1 times A: another value, the same gradient."""
        case = Case("", {"loss_type": "grpo"}, {"truncated": True, "gap": 0.1}, trainer)
        data = make_data(case, 1)
        theirs = compute_loss(data, case.settings, trainer=trainer)
        by_numpy, _, slope = our_answer(case, data)
        empty = ~data.mask.any(axis=1)
        constant = -data.advantages[empty].sum() / len(empty)
        np.testing.assert_allclose(by_numpy + constant, theirs.loss, rtol=1e-12)
        np.testing.assert_allclose(slope, theirs.gradient, rtol=1e-10, atol=1e-16)

    def test_junk_on_padding_does_not_move_our_loss_away(self):
        case = Case("", {"loss_type": "grpo", "beta": 0.04})
        data = make_data(case, 0)
        dirty = dataclasses.replace(data, logp=np.where(data.mask, data.logp, -np.inf))
        by_numpy, by_torch, slope = our_answer(case, dirty)
        theirs = compute_loss(data, case.settings)
        np.testing.assert_allclose([by_numpy, by_torch], theirs.loss, rtol=1e-12)
        np.testing.assert_allclose(slope, theirs.gradient, rtol=1e-10, atol=1e-16)


class TestMetrics:
    """What TRL logs about a micro-batch against batch_statistics."""

    @staticmethod
    def compare(case, seed):
        data = make_data(case, seed)
        theirs = compute_loss(data, case.settings).metrics
        batch, objective = make_batch(case, data), objective_for(case)
        return batch_statistics(batch, loss_terms(batch, objective), objective), theirs

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("level", ["token", "sequence"])
    @pytest.mark.parametrize("loss_type", CLIPPED)
    def test_clip_fractions_kl_and_entropy(self, loss_type, level, seed):
        case = Case(
            "", {"loss_type": loss_type, "level": level, "beta": 0.04, "epsilon_low": 0.1, "epsilon_high": 0.15}
        )
        ours, theirs = self.compare(case, seed)
        sides = [f"clip_ratio/{side}" for side in ("low_mean", "high_mean", "region_mean", "low_min", "high_max")]
        for name in (*sides, "kl", "entropy"):
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-6, atol=1e-9, err_msg=name)

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize(("loss_type", "name"), [("cispo", "cispo_clip_ratio"), ("vespo", "vespo/phi_seq_mean")])
    def test_what_other_surrogates_report(self, loss_type, name, seed):
        ours, theirs = self.compare(Case("", {"loss_type": loss_type}), seed)
        assert theirs[name] > 0
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-6)

    def test_delta_hides_the_high_clip_fraction_from_trl(self):
        """TRL counts after it has capped the ratio at delta: below the clip range nothing is ever high. We count it."""
        case = Case("", {"loss_type": "grpo", "delta": 1.1})
        results = [self.compare(case, seed) for seed in range(3)]
        assert max(theirs["clip_ratio/high_mean"] for _, theirs in results) == 0
        assert max(ours["clip_ratio/high_mean"] for ours, _ in results) > 0
        for ours, theirs in results:
            assert ours["clip_ratio/low_mean"] == pytest.approx(theirs["clip_ratio/low_mean"], rel=1e-6)

    def test_they_are_not_all_zero(self):
        case = Case("", {"loss_type": "grpo", "beta": 0.04})
        results = [self.compare(case, seed)[1] for seed in range(3)]
        for name in ("clip_ratio/low_mean", "clip_ratio/high_mean", "kl", "entropy"):
            assert max(result[name] for result in results) > 0

    def test_truncated_completions_leave_every_mean(self):
        case = Case("", {"loss_type": "grpo", "beta": 0.04}, {"truncated": True})
        ours, theirs = self.compare(case, 0)
        for name in ("clip_ratio/low_mean", "clip_ratio/high_mean", "kl", "entropy"):
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-6, atol=1e-9)
