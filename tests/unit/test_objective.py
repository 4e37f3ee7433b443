import math

import numpy as np
import pytest

from grpo_core import RECIPES, SURROGATES, Accounting, GroupBatch, Objective, loss_terms
from tests.support import difference_gradient, to_numpy, torch_gradient

# Two completions of 1 and 3 tokens. Ratios 1.5 | 0.5, 1, 2; advantages 1 and -2; ref/current 1 | 1, 2, 1.
MASK = np.array([[True, False, False], [True, True, True]])
LOGP = np.array([[-1.0, 0.0, 0.0], [-2.0, -3.0, -1.5]])
OLD = LOGP - np.where(MASK, np.log([[1.5, 1, 1], [0.5, 1.0, 2.0]]), 0.0)
REF = LOGP + np.where(MASK, np.log([[1.0, 1, 1], [1.0, 2.0, 1.0]]), 0.0)
ADVANTAGES = np.array([1.0, -2.0])
# objective: 1.2 | -1.6 (clipped at 0.8), -2, -4;  kl: 0 | 0, 1 - ln 2, 0
VALUES = np.array([[1.2, 0, 0], [-1.6, -2.0, -4.0]])
KL = 1 - math.log(2.0)


def make(backend=None, **changes):
    convert = np.asarray if backend is None else backend.array
    mask = MASK if backend is None else backend.mask(MASK)
    fields = {
        "logp": convert(LOGP),
        "old_logp": convert(OLD),
        "ref_logp": convert(REF),
        "mask": mask,
        "advantages": convert(ADVANTAGES),
    }
    return GroupBatch(**{**fields, **changes})


class TestLossTerms:
    def test_every_part_by_hand(self, backend):
        terms = loss_terms(make(backend), Objective(beta=0.5))
        backend.check(terms.ratio, [[1.5, 1, 1], [0.5, 1, 2]])
        backend.check(terms.objective, VALUES)
        backend.check(terms.kl, [[0, 0, 0], [0, KL, 0]])
        backend.check(terms.weights, [[1 / 2, 0, 0], [1 / 6, 1 / 6, 1 / 6]])
        backend.check(terms.per_token, -VALUES + 0.5 * np.array([[0, 0, 0], [0, KL, 0]]))
        backend.check(terms.policy_loss, -0.6 + 7.6 / 6)
        backend.check(terms.kl_loss, KL / 6)
        backend.check(terms.loss, -0.6 + 7.6 / 6 + 0.5 * KL / 6)
        assert to_numpy(terms.saturated).tolist() == [[True, False, False], [True, False, False]]
        assert to_numpy(terms.mask).tolist() == MASK.tolist()

    def test_contributions_sum_to_the_loss(self, backend):
        terms = loss_terms(make(backend), Objective(beta=0.5, aggregation="token_mean"))
        np.testing.assert_allclose(to_numpy(terms.contribution).sum(), float(terms.loss), rtol=backend.rtol)

    @pytest.mark.parametrize(
        ("changes", "loss"),
        [
            ({"aggregation": "token_mean"}, (-1.2 + 7.6) / 4),
            ({"aggregation": "constant", "constant": 10}, (-1.2 + 7.6) / 20),
            ({"aggregation": "sequence_sum"}, (-1.2 + 7.6) / 2),
            ({"aggregation": "token_sum"}, -1.2 + 7.6),
            ({"surrogate": "unclipped"}, -1.5 / 2 + 7.0 / 6),
            ({"surrogate": "policy_gradient"}, 1.0 / 2 - 2 * 6.5 / 6),
            ({"epsilon_low": 0.5, "epsilon_high": 0.5}, -1.5 / 2 + 7.0 / 6),
            ({"delta": 1.5}, -0.6 + (1.6 + 2 + 3) / 6),
            # sequence ratios: 1.5 and (0.5 * 1 * 2)^(1/3) = 1
            ({"ratio_level": "sequence"}, -0.6 + 1.0),
            ({"ratio_level": "trajectory"}, -0.6 + 1.0),
            ({"beta": 2.0, "kl_estimator": "k1"}, -0.6 + 7.6 / 6 - 2 * math.log(2) / 6),
            ({"beta": 2.0, "kl_estimator": "k2"}, -0.6 + 7.6 / 6 + math.log(2) ** 2 / 6),
            ({"beta": 2.0, "kl_ratio_weighted": True}, -0.6 + 7.6 / 6 + 2 * KL / 6),
        ],
    )
    def test_choices_by_hand(self, backend, changes, loss):
        backend.check(loss_terms(make(backend), Objective(**changes)).loss, loss)

    def test_kl_is_shown_but_not_counted_at_beta_zero(self, backend):
        terms = loss_terms(make(backend), Objective())
        backend.check(terms.kl_loss, KL / 6)
        backend.check(terms.loss, -0.6 + 7.6 / 6)

    def test_without_a_reference(self, backend):
        terms = loss_terms(make(backend, ref_logp=None), Objective())
        assert terms.kl is None
        assert float(terms.kl_loss) == 0.0

    def test_per_token_advantages(self, backend):
        advantages = backend.array([[1.0, 99, 99], [-2, 0, 2]])
        # -2: clipped 0.8; 0: nothing; 2 at ratio 2: clipped 1.2
        terms = loss_terms(make(backend, advantages=advantages), Objective())
        backend.check(terms.objective, [[1.2, 0, 0], [-1.6, 0, 2.4]])

    def test_column_advantages(self, backend):
        column = backend.array(ADVANTAGES[:, None])
        backend.check(loss_terms(make(backend, advantages=column), Objective()).objective, VALUES)

    def test_truncated_completions_can_be_masked(self, backend):
        batch = make(backend, truncated=backend.mask([False, True]))
        terms = loss_terms(batch, Objective(mask_truncated=True))
        backend.check(terms.loss, -0.6)  # still a mean over two completions, as TRL does it
        assert not to_numpy(terms.mask)[1].any()
        backend.check(loss_terms(batch, Objective(mask_truncated=True, aggregation="token_mean")).loss, -1.2)
        with pytest.raises(ValueError, match="mask_truncated needs"):
            loss_terms(make(backend), Objective(mask_truncated=True))

    @pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean", "constant", "sequence_sum", "token_sum"])
    def test_nothing_to_train_is_exactly_zero(self, backend, aggregation):
        batch = make(backend, mask=backend.mask(np.zeros_like(MASK)))
        terms = loss_terms(batch, Objective(beta=0.1, aggregation=aggregation, constant=3))
        assert float(terms.loss) == 0.0

    def test_accounting_of_accumulation_steps(self, backend):
        batch = make(backend, accounting=Accounting(micro_batches=4))
        backend.check(loss_terms(batch, Objective()).loss, (-0.6 + 7.6 / 6) / 4)

    def test_accounting_of_the_generation_batch(self, backend):
        # TRL: sum / (N / processes * micro_batches / generation_steps) with N = 60: 60 / 2 * 2 / 4 = 15
        batch = make(backend, accounting=Accounting(tokens=60, micro_batches=2, generation_steps=4, processes=2))
        backend.check(loss_terms(batch, Objective(aggregation="token_mean", scope="global")).loss, 6.4 / 15)

    def test_beta_needs_a_reference(self):
        with pytest.raises(ValueError, match=r"beta is 0\.1, so ref_logp must be given"):
            loss_terms(make(ref_logp=None), Objective(beta=0.1))

    def test_constant_is_needed(self):
        with pytest.raises(ValueError, match="constant must be given for mode 'constant'"):
            loss_terms(make(), Objective(aggregation="constant"))

    def test_only_logp_is_differentiated(self):
        import torch

        tensors = [torch.tensor(x, requires_grad=True) for x in (LOGP, OLD, REF, ADVANTAGES)]
        logp, old, ref, advantages = tensors
        batch = GroupBatch(logp=logp, old_logp=old, ref_logp=ref, mask=torch.tensor(MASK), advantages=advantages)
        loss_terms(batch, Objective(beta=0.5)).loss.backward()
        assert logp.grad is not None
        assert old.grad is None
        assert ref.grad is None
        assert advantages.grad is None

    def test_gradient_by_hand(self):
        import torch

        batch = make_torch()
        slope = torch_gradient(lambda x: loss_terms(batch(x), Objective(beta=0.5)).loss, LOGP)
        # -w A r where open, 0 where clipped; KL: w beta (1 - exp(d))
        expected = [[0.0, 0, 0], [0.0, 2 / 6 - 0.5 / 6, 4 / 6]]
        np.testing.assert_allclose(slope, expected, rtol=1e-13, atol=1e-15)
        assert torch.get_default_dtype() == torch.float32


def make_torch(**changes):
    import torch

    def build(logp):
        fields = {
            "old_logp": torch.tensor(OLD),
            "ref_logp": torch.tensor(REF),
            "mask": torch.tensor(MASK),
            "advantages": torch.tensor(ADVANTAGES),
        }
        return GroupBatch(logp=logp, **{**fields, **changes})

    return build


# A stopped gradient or a selection: the gradient is not the derivative of the value.
FROZEN = {"cispo", "vespo", "dppo_tv", "dppo_kl", "kl_cov", "clip_cov"}
# A penalty on the log-ratio that does not depend on the advantage.
PENALISED = {"dro", "kl_cov"}
AGGREGATIONS = ["sequence_mean", "token_mean", "constant"]


class TestEverySurrogate:
    """What holds for each entry of SURROGATES, whatever it is."""

    def batch(self, seed=0, shape=(4, 6)):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(1, shape[1] + 1, shape[0])
        mask = np.arange(shape[1])[None, :] < lengths[:, None]
        logp = -rng.uniform(0.2, 2.0, shape)
        return {
            "logp": logp,
            "old_logp": logp + rng.normal(0, 0.3, shape),
            "ref_logp": logp + rng.normal(0, 0.5, shape),
            "mask": mask,
            "advantages": rng.normal(size=shape[0]),
            "entropy": rng.uniform(0, 2, shape),
            "uniform": rng.uniform(size=shape),
        }

    @pytest.mark.parametrize("surrogate", sorted(SURROGATES))
    def test_same_value_on_every_backend(self, backend, surrogate):
        data = self.batch()
        reference = loss_terms(GroupBatch(**data), Objective(surrogate=surrogate, beta=0.1))
        converted = {k: backend.mask(v) if k == "mask" else backend.array(v) for k, v in data.items()}
        terms = loss_terms(GroupBatch(**converted), Objective(surrogate=surrogate, beta=0.1))
        for name in ("loss", "objective", "ratio", "kl", "weights", "per_token", "contribution"):
            backend.check(getattr(terms, name), getattr(reference, name))
        np.testing.assert_array_equal(to_numpy(terms.saturated), reference.saturated)

    @pytest.mark.parametrize("level", ["token", "sequence", "trajectory"])
    @pytest.mark.parametrize("aggregation", AGGREGATIONS)
    @pytest.mark.parametrize("surrogate", sorted(set(SURROGATES) - FROZEN))
    def test_autograd_agrees_with_differences_where_nothing_is_frozen(self, surrogate, aggregation, level):
        import torch

        data = self.batch(1)
        objective = Objective(
            surrogate=surrogate, aggregation=aggregation, constant=6, ratio_level=level, beta=0.3, epsilon_high=0.25
        )
        rest = {k: torch.tensor(v) for k, v in data.items() if k != "logp"}
        exact = torch_gradient(lambda x: loss_terms(GroupBatch(logp=x, **rest), objective).loss, data["logp"])
        numeric = difference_gradient(
            lambda x: loss_terms(GroupBatch(**{**data, "logp": x}), objective).loss, data["logp"]
        )
        np.testing.assert_allclose(exact, numeric, rtol=1e-6, atol=1e-8)
        assert (exact[~data["mask"]] == 0).all()
        assert np.abs(exact).max() > 0

    @pytest.mark.parametrize("junk", [math.inf, -math.inf, math.nan])
    @pytest.mark.parametrize("surrogate", sorted(SURROGATES))
    def test_junk_on_padding_reaches_neither_value_nor_gradient(self, surrogate, junk):
        import torch

        data = self.batch(2)
        clean = {k: torch.tensor(v) for k, v in data.items()}
        dirty = {k: v.clone() for k, v in clean.items()}
        for name in ("logp", "old_logp", "ref_logp", "entropy"):
            dirty[name][~clean["mask"]] = junk
        objective = Objective(surrogate=surrogate, beta=0.1)
        results = []
        for part in (clean, dirty):
            logp = part["logp"].clone().requires_grad_()
            loss = loss_terms(GroupBatch(**{**part, "logp": logp}), objective).loss
            loss.backward()
            results.append((float(loss.detach()), logp.grad.numpy()))
        assert results[0][0] == results[1][0]
        np.testing.assert_array_equal(results[0][1], results[1][1])

    @pytest.mark.parametrize("surrogate", sorted(SURROGATES))
    def test_saturated_means_no_gradient(self, surrogate):
        import torch

        data = self.batch(3, (8, 6))
        data["old_logp"] = data["logp"] + np.random.default_rng(7).normal(0, 1.0, data["logp"].shape)
        rest = {k: torch.tensor(v) for k, v in data.items() if k != "logp"}
        logp = torch.tensor(data["logp"], requires_grad=True)
        terms = loss_terms(GroupBatch(logp=logp, **rest), Objective(surrogate=surrogate))
        terms.loss.backward()
        assert (logp.grad[terms.saturated] == 0).all()

    @pytest.mark.parametrize("surrogate", sorted(SURROGATES))
    def test_huge_log_ratios_stay_finite(self, surrogate):
        data = self.batch(4)
        data["old_logp"] = data["logp"] - 900.0
        terms = loss_terms(GroupBatch(**data), Objective(surrogate=surrogate))
        assert np.isfinite(terms.loss)

    @pytest.mark.parametrize("surrogate", sorted(set(SURROGATES) - PENALISED))
    def test_zero_advantages_give_no_gradient(self, surrogate):
        import torch

        data = self.batch(5)
        data["advantages"] = np.zeros(4)
        rest = {k: torch.tensor(v) for k, v in data.items() if k != "logp"}
        slope = torch_gradient(
            lambda x: loss_terms(GroupBatch(logp=x, **rest), Objective(surrogate=surrogate)).loss, data["logp"]
        )
        assert (slope == 0).all()


class TestObjective:
    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"ratio_level": "word"}, "ratio_level must be one of .* got 'word'"),
            ({"surrogate": "ppo"}, "surrogate must be one of .*'clip'.* got 'ppo'"),
            ({"epsilon_low": 1.5}, "epsilon_low must be between 0 and 1, got 1.5"),
            ({"epsilon_low": None}, "epsilon_low must be a number, got None"),
            ({"epsilon_high": -0.1}, "epsilon_high .* got -0.1"),
            ({"delta": 0.0}, "delta must be finite and above 0, got 0.0"),
            ({"beta": -1}, "beta must be finite and at least 0, got -1"),
            ({"kl_estimator": "kl"}, "kl_estimator must be one of .*'k3'.* got 'kl'"),
            ({"aggregation": "mean"}, "aggregation must be one of .* got 'mean'"),
            ({"constant": 0}, "constant must be finite and above 0, got 0"),
            ({"scope": "all"}, "scope must be one of 'batch', 'global'; got 'all'"),
            ({"log_ratio_cap": 0}, "log_ratio_cap must be .* above 0, got 0"),
            ({"top_entropy_quantile": 1.2}, "top_entropy_quantile must be between 0 and 1, got 1.2"),
            ({"options": {"epsilon": 1}}, "options of 'clip' are .*, got .*epsilon"),
        ],
    )
    def test_bad_choices_are_named(self, changes, says):
        with pytest.raises(ValueError, match=says):
            Objective(**changes)

    def test_replace(self):
        assert Objective().replace(beta=0.1) == Objective(beta=0.1)

    def test_own_fields_then_options_then_defaults(self):
        parameters = Objective(epsilon_high=0.3, delta=4).surrogate_parameters()
        assert parameters == {"epsilon_low": 0.2, "epsilon_high": 0.3, "delta": 4}

    def test_objectives_of_all_recipes_can_be_compared(self):
        for recipe in RECIPES.values():
            assert recipe.objective == recipe.objective.replace()
