import dataclasses

import pytest

from grpo_core import RECIPES, Recipe, get_recipe

FIRST = (
    *("grpo_paper", "dr_grpo_paper", "dapo_paper", "gspo_paper", "rloo_paper"),
    *("trl_grpo", "trl_bnpo", "trl_dr_grpo", "trl_dapo"),
)


class TestRecipes:
    @pytest.mark.parametrize("name", FIRST)
    def test_the_promised_names_exist(self, name):
        assert isinstance(RECIPES[name], Recipe)

    @pytest.mark.parametrize("name", sorted(RECIPES))
    def test_each_says_where_it_comes_from(self, name):
        recipe = RECIPES[name]
        assert recipe.name == name
        assert recipe.title
        assert recipe.source.kind in {"paper", "trainer"}
        assert recipe.source.title
        assert recipe.source.where
        assert (recipe.constant_from is None) == (recipe.objective.aggregation != "constant")

    def test_the_mapping_cannot_be_changed(self):
        with pytest.raises(TypeError):
            RECIPES["mine"] = RECIPES["trl_grpo"]
        with pytest.raises(dataclasses.FrozenInstanceError):
            RECIPES["trl_grpo"].objective.beta = 1.0

    def test_titles_are_distinct(self):
        titles = [recipe.title for recipe in RECIPES.values()]
        assert len(set(titles)) == len(titles)

    # The differences under one name that a reader must be able to trust.
    def test_grpo_paper(self):
        recipe = RECIPES["grpo_paper"]
        assert recipe.objective.aggregation == "sequence_mean"
        assert recipe.objective.beta == 0.04
        assert recipe.objective.kl_estimator == "k3"
        assert not recipe.objective.kl_ratio_weighted
        assert (recipe.advantage.ddof, recipe.advantage.eps) == (0, 0.0)
        assert recipe.sampling.group_size == 64

    def test_dr_grpo_paper_removes_both_divisions(self):
        recipe = RECIPES["dr_grpo_paper"]
        assert recipe.advantage.scale == "none"
        assert recipe.objective.aggregation == "constant"
        assert recipe.objective.beta == 0.0

    def test_dapo_paper(self):
        recipe = RECIPES["dapo_paper"]
        assert (recipe.objective.epsilon_low, recipe.objective.epsilon_high) == (0.2, 0.28)
        assert recipe.objective.aggregation == "token_mean"
        assert recipe.sampling.dynamic

    def test_gspo_paper(self):
        recipe = RECIPES["gspo_paper"]
        assert recipe.objective.ratio_level == "sequence"
        assert (recipe.objective.epsilon_low, recipe.objective.epsilon_high) == (3e-4, 4e-4)

    @pytest.mark.parametrize("name", ["trl_grpo", "trl_bnpo", "trl_dr_grpo", "trl_dapo"])
    def test_trl_s_defaults(self, name):
        recipe = RECIPES[name]
        assert recipe.objective.beta == 0.0
        assert recipe.objective.kl_ratio_weighted
        assert (recipe.objective.epsilon_low, recipe.objective.epsilon_high) == (0.2, 0.2)
        assert (recipe.advantage.ddof, recipe.advantage.eps, recipe.advantage.scale) == (1, 1e-4, "group")


class TestGetRecipe:
    def test_known(self):
        assert get_recipe("trl_dapo") is RECIPES["trl_dapo"]

    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("trl_dappo", "there is no recipe 'trl_dappo'; did you mean 'trl_dapo'?"),
            ("GRPO_paper", "there is no recipe 'GRPO_paper'; did you mean 'grpo_paper'?"),
            ("zzz", "there is no recipe 'zzz'; known recipes: "),
            (None, "there is no recipe None"),
        ],
    )
    def test_unknown_suggests_the_nearest(self, name, says):
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is checked below
            get_recipe(name)
        assert str(caught.value).startswith(says)
