import pytest

from grpo_core.memory import METHODS, PRECISIONS, TRAINED, model_memory, training_memory


class TestOneModel:
    @pytest.mark.parametrize(("precision", "trained", "frozen"), [("mixed", 16, 2), ("bf16", 8, 2), ("fp32", 16, 4)])
    def test_bytes_a_parameter(self, precision, trained, frozen):
        assert model_memory("policy", 1, precision=precision).total == trained
        assert model_memory("reference", 1, precision=precision).total == frozen

    def test_frozen_models_have_weights_only(self):
        model = model_memory("reward", 10.0)
        assert (model.weights, model.gradients, model.optimizer) == (20.0, 0.0, 0.0)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"role": "judge", "parameters": 1}, "role must be one of"),
            ({"role": "policy", "parameters": -1}, "parameters must be"),
            ({"role": "policy", "parameters": float("nan")}, "parameters must be"),
            ({"role": "policy", "parameters": 1, "precision": "int3"}, "precision must be one of"),
        ],
    )
    def test_what_does_not_exist_is_an_error(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            model_memory(**arguments)


class TestMethods:
    def test_four_three_two_and_one(self):
        assert {name: len(roles) for name, roles in METHODS.items()} == {
            "ppo": 4, "grpo_model": 3, "grpo": 2, "grpo_free": 1, "dpo": 2,
        }  # fmt: skip

    def test_dropping_the_critic_saves_what_a_trained_model_takes(self):
        totals = {name: sum(m.total for m in training_memory(name, {"policy": 7e9})) for name in METHODS}
        assert totals["ppo"] - totals["grpo_model"] == model_memory("value", 7e9).total == 112e9
        assert totals["grpo_model"] - totals["grpo"] == 14e9
        assert totals["grpo"] == totals["dpo"]
        assert totals["grpo_free"] == 112e9

    def test_roles_may_differ_in_size(self):
        sizes = {m.role: m.total for m in training_memory("ppo", {"policy": 7e9, "reward": 1e9, "value": 1e9})}
        assert sizes == {"policy": 112e9, "reference": 14e9, "reward": 2e9, "value": 16e9}

    def test_every_trained_role_is_a_role(self):
        assert set(TRAINED) <= set(METHODS["ppo"])
        assert set(PRECISIONS) == {"mixed", "bf16", "fp32"}

    def test_bad_input(self):
        with pytest.raises(ValueError, match="method must be one of"):
            training_memory("sarsa", {"policy": 1})
        with pytest.raises(ValueError, match="at least 'policy'"):
            training_memory("ppo", {"value": 1})
