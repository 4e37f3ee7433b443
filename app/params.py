"""Every setting of the explorer, declared as data: name, kind, default, range. The URL and the widgets read this."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from app.alternatives import ALTERNATIVES
from app.asked import asked, topics
from app.bench import bench_cases
from app.words import t
from grpo_core import RECIPES, SURROGATES, AdvantageSpec, Objective, get_recipe
from grpo_core.advantages import ESTIMATORS
from grpo_core.differences import choice_names
from grpo_core.rewards import SCRIPTS

DEFAULT_RECIPE = "grpo_paper"


SHOWN_RECIPES = tuple(RECIPES)


@dataclass(frozen=True, kw_only=True)
class Param:
    """One setting. `name` is its key in the session and in the URL.

    `kind`: "number", "whole", "choice", "names" (several of `choices`), "numbers" (a list) or "packed" (text made by
    `link.pack`). `default`: None with `from_recipe` means "what the recipe says". `low` and `high` are the slider's
    ends; `floor` and `ceiling`, where they lie further out, are accepted when typed. `optional`: None ("off") is a
    value of its own. `stops`: the values a slider offers; `log`: its scale.
    """

    name: str
    kind: str
    default: Any = None
    low: float = 0.0
    high: float = 1.0
    step: float = 0.01
    floor: float | None = None
    ceiling: float | None = None
    choices: tuple[Any, ...] = ()
    optional: bool = False
    from_recipe: bool = False
    stops: tuple[float, ...] = ()
    log: bool = False
    longest: int = 200  # characters that are read from a link

    def parse(self, text: str) -> Any:
        """Return the value that `text` stands for; ValueError says what is accepted."""
        if self.optional and text.strip().lower() in ("off", "none", "auto", "∞", "-", ""):
            return None
        if self.kind == "choice":
            return self._chosen(text)
        if self.kind == "packed":
            return self._packed(text)
        if self.kind == "names":
            return tuple(self._chosen(part) for part in text.split(","))
        if self.kind == "numbers":
            return tuple(self.number(part) for part in self._parts(text))
        return self.number(text)

    def write(self, value: Any) -> str:
        """Return the text that `parse` reads back as `value`."""
        if value is None:
            return "off"
        if self.kind == "numbers":
            return ",".join(_short(x) for x in value)
        if self.kind == "names":
            return ",".join(value)
        return str(value) if self.kind in ("choice", "whole", "packed") else _short(value)

    def _chosen(self, text: str) -> Any:
        for choice in self.choices:
            if str(choice) == text:
                return choice
        raise ValueError(t("accept.one_of", choices=", ".join(map(str, self.choices))))

    def _packed(self, text: str) -> str:
        if re.fullmatch(r"[A-Za-z0-9_-]+", text) is None or len(text) >= self.longest:
            raise ValueError(t("accept.packed"))
        return text

    def _parts(self, text: str) -> list[str]:
        parts = text.split(",")
        if not 2 <= len(parts) <= 8:
            raise ValueError(t("accept.list"))
        return parts

    def number(self, text: str) -> float | int:
        """Return one number that lies in the range; ValueError says what is accepted."""
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        whole = self.kind == "whole"
        low = self.low if self.floor is None else self.floor
        high = self.high if self.ceiling is None else self.ceiling
        if not math.isfinite(value) or not low <= value <= high or (whole and value != int(value)):
            key = "accept.whole" if whole else "accept.number"
            raise ValueError(t(key, low=_short(low), high=_short(high)))
        return int(value) if whole else value


def _short(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def _number(name: str, default: Any, low: float, high: float, step: float, **more: Any) -> Param:
    return Param(name=name, kind="number", default=default, low=low, high=high, step=step, **more)


def _whole(name: str, default: Any, low: int, high: int, **more: Any) -> Param:
    return Param(name=name, kind="whole", default=default, low=low, high=high, step=1, **more)


def _numbers(name: str, default: tuple[float, ...], low: float, high: float, step: float, **more: Any) -> Param:
    return Param(name=name, kind="numbers", default=default, low=low, high=high, step=step, **more)


def _choice(name: str, choices: tuple[Any, ...], **more: Any) -> Param:
    return Param(name=name, kind="choice", choices=choices, **{"default": choices[0], **more})


_RECIPE = {"from_recipe": True, "default": None}
_EPS_STOPS = (0.0, 1e-9, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)

_FREE = {"floor": -100.0, "ceiling": 100.0}
_LOGP = {"low": -40.0, "high": 0.0, "step": 0.1, "floor": -10_000.0}
_PPO = (
    _choice("ppo_view", ("critic", "memory", "trust", "dpo", "where", "rounds", "compared")),
    _choice("critic_view", ("gae", "vine")),
    _numbers("tr", (0.0, 0.0, 1.0), -1.0, 1.0, 0.05, **_FREE),
    _numbers("tv", (0.2, 0.4, 0.7), 0.0, 1.0, 0.01, **_FREE),
    _number("gamma", 1.0, 0.0, 1.0, 0.01),
    _number("lam", 0.9, 0.0, 1.0, 0.01),
    _number("boot", None, 0.0, 1.0, 0.01, optional=True, **_FREE),
    _whole("at_t", 1, 1, 8),
    _numbers("vine", (0.4, 0.5, 0.8, 0.3, 0.7), 0.0, 1.0, 0.01),
    _whole("vine_k", 9, 1, 64),
    _whole("vine_len", 512, 8, 16384, log=True),
    _number("vine_r", 1.0, 0.0, 1.0, 0.01, **_FREE),
    _choice("mem_prec", ("mixed", "bf16", "fp32")),
    _number("mem_p", 7.0, 0.1, 1000.0, 0.1, log=True),
    _number("mem_r", None, 0.1, 1000.0, 0.1, log=True, optional=True),
    _number("mem_v", None, 0.1, 1000.0, 0.1, log=True, optional=True),
    _choice("trust_view", ("bound", "step")),
    _number("alpha", 0.1, 0.0, 0.5, 0.005),
    _number("a_max", 1.0, 0.05, 10.0, 0.05, ceiling=1000.0),
    _whole("horizon", 10, 1, 100, log=True),
    _numbers("nat_p", (0.7, 0.2, 0.1), 0.0, 1.0, 0.01),
    _numbers("nat_r", (0.0, 1.0, 0.5), -1.0, 1.0, 0.01, **_FREE),
    _number("nat_d", 0.02, 1e-4, 1.0, 1e-4, log=True),
    _choice("dpo_view", ("pair", "optimum")),
    _number("dpo_w", -10.0, **_LOGP),
    _number("dpo_wr", -12.0, **_LOGP),
    _number("dpo_l", -15.0, **_LOGP),
    _number("dpo_lr", -11.0, **_LOGP),
    _number("dpo_beta", 0.1, 0.01, 2.0, 0.01, floor=1e-6, ceiling=1000.0),
    _numbers("opt_ref", (0.5, 0.3, 0.2), 0.0, 1.0, 0.01),
    _numbers("opt_r", (1.0, 0.0, 2.0), -2.0, 2.0, 0.01, **_FREE),
    _number("opt_beta", 0.5, 0.05, 10.0, 0.01, log=True, floor=1e-3, ceiling=1000.0),
    _choice("where_view", ("tokens", "chain")),
    _whole("comp", 1, 1, 64),
    _numbers("ch_p", (0.9, 0.6, 0.3), 0.0, 1.0, 0.01),
    _numbers("ch_q", (0.5, 0.5, 0.5), 0.0, 1.0, 0.01),
    _whole("it_i", 2, 1, 4),
    _whole("it_m", 3, 1, 6),
    _whole("it_mu", 2, 1, 6),
    _whole("moment", 1, 1, 200),
    _number("replay", 0.1, 0.0, 0.5, 0.01, ceiling=1.0),
)
_SAMPLING = (
    _choice("samp_view", ("dynamic", "budget", "temperature", "pass")),
    _numbers("rates", (0.02, 0.2, 0.5, 0.9, 1.0), 0.0, 1.0, 0.01),
    _choice("refill", ("keep", "resample", "retry"), default="resample"),
    _whole("batch_n", 64, 1, 256, log=True),
    _whole("budget", 256, 8, 8192, log=True),
    _numbers("probs", (0.5, 0.3, 0.15, 0.05), 0.0, 1.0, 0.01),
    _number("temp", 1.0, 0.1, 2.0, 0.01, floor=0.01, ceiling=100.0),
    _whole("top_k", None, 1, 8, optional=True),
    _number("top_p", None, 0.05, 1.0, 0.01, floor=0.001, optional=True),
    _number("t_temp", 1.0, 0.1, 2.0, 0.01, floor=0.01, ceiling=100.0),
    _whole("seq_n", 100, 1, 10_000, log=True),
    _whole("pk_n", 16, 1, 256),
    _whole("pk_c", 2, 0, 256),
    _whole("pk_k", 8, 1, 256),
)
_WEIGHT = {"low": -1.0, "high": 2.0, "step": 0.05, "optional": True, **_FREE}
_REWARDS = (
    _choice("bench", tuple(bench_cases())),
    Param(name="bench_x", kind="packed", optional=True, longest=8001),
    _choice("rew_view", ("scores", "lengths")),
    _number("w_tag", 1.0, **_WEIGHT),
    *(_number(name, None, **_WEIGHT) for name in ("w_box", "w_num", "w_any", "w_fmt", "w_lang", "w_long")),
    _choice("no_answer", ("wrong", "unscored")),
    _choice("script", tuple(SCRIPTS)),
    _whole("long_max", 60, 2, 32_768, log=True),
    _whole("long_cache", 20, 0, 32_768),
)
_LOSS = (
    _choice("surrogate", tuple(SURROGATES), **_RECIPE),
    _choice("klw", ("plain", "weighted"), **_RECIPE),
    _choice("cut", ("train", "drop"), **_RECIPE),
    _number("greedy", 0.0, 0.0, 1.0, 0.01, **_FREE),
    _whole("draw", 0, 0, 99),
    _choice("loss_view", ("tokens", "compare", "whatif", "settings")),
    _numbers("tok", None, 1.0, 100_000.0, 1.0, optional=True),  # completion and position, from 1
    _choice("other", tuple(RECIPES), default="dapo_paper"),
    Param(name="kept", kind="names", choices=choice_names(), optional=True, longest=800),  # not taken over
    _choice("heat", ("difference", "first", "second")),
    _choice("unit", ("absolute", "share")),
    _choice("alt", tuple(ALTERNATIVES), default="reduce:token_mean"),
)
_GRADIENTS = (
    _choice("grad_view", ("actions", "simplex", "size", "baseline", "lengths", "togo")),
    _numbers("pi", (1.0, 1.0, 1.0), 0.01, 1.0, 0.01, floor=1e-6),  # weights of the actions
    _numbers("rw", (0.0, 1.0, 10.0), 0.0, 10.0, 0.1, **_FREE),
    _whole("gg", 2, 1, 16, ceiling=64),
    _choice("gest", ("reinforce", "critic", "mean", "loo", "std", "trl", "greedy", "best"), default="std"),
    _choice("gunit", ("absolute", "direction")),
    _number("gbase", None, 0.0, 10.0, 0.1, optional=True, **_FREE),
    _numbers("stop", (0.5, 0.5, 0.5), 0.02, 0.98, 0.01),  # probability of ending at each position
    _numbers("srw", (1.0, 1.0, 1.0), 0.0, 1.0, 0.05, **_FREE),
    _number("rcut", 1.0, 0.0, 1.0, 0.05, **_FREE),  # reward of a completion that was cut off
    _numbers("paya", (0.0, 0.0, 0.0), 0.0, 1.0, 0.05, **_FREE),
    _numbers("pays", (0.2, 0.5, 1.0), 0.0, 1.0, 0.05, **_FREE),
)
_QUESTIONS = (
    _choice("topic", ("all", *topics())),
    _choice("q", tuple(asked()), default=None, optional=True),
)

PARAMS: Mapping[str, Param] = {
    param.name: param
    for param in (
        _choice("recipe", tuple(RECIPES), default=DEFAULT_RECIPE),
        # shared by all pages; the recipe gives the defaults
        _choice("estimator", tuple(ESTIMATORS), **_RECIPE),
        _choice("ddof", (0, 1), **_RECIPE),
        _number("eps", None, 0.0, 1.0, 1e-9, from_recipe=True, stops=_EPS_STOPS),
        _choice("scale", ("group", "batch", "none"), **_RECIPE),
        _choice("level", ("token", "sequence", "trajectory"), **_RECIPE),
        _number("eps_low", None, 0.0, 1.0, 0.01, from_recipe=True),
        _number("eps_high", None, 0.0, 1.0, 0.01, from_recipe=True, ceiling=10.0),
        _number("delta", None, 1.0, 10.0, 0.1, from_recipe=True, optional=True),
        _choice("kl", ("k1", "k2", "k3"), **_RECIPE),
        _number("beta", None, 0.0, 1.0, 0.01, from_recipe=True),
        _choice("reduce", ("sequence_mean", "token_mean", "constant", "sequence_sum", "token_sum"), **_RECIPE),
        Param(name="constant", kind="whole", low=1, high=4096, step=1, optional=True, log=True),
        # one page each
        _choice("adv_view", ("bars", "estimators", "rates", "mixed")),
        _number("p", 0.2, 0.0, 1.0, 0.01),
        Param(name="mix_g", kind="whole", default=8, low=1, high=64, step=1),
        _choice("clip_view", ("curve", "levels", "graph")),
        _choice("sign", ("up", "down")),
        _number("r", 1.5, 0.0, 3.0, 0.01, ceiling=1000.0),
        _number("drift", 1.01, 0.9, 1.1, 0.001, floor=0.5, ceiling=2.0),
        Param(name="drift_n", kind="whole", default=1000, low=1, high=2000, step=1, ceiling=100_000),
        _choice("kl_view", ("curve", "distribution")),
        _number("d", 0.5, -3.0, 3.0, 0.01, floor=-1000.0, ceiling=1000.0),
        Param(name="cur", kind="numbers", default=(0.6, 0.4), low=0.0, high=1.0, step=0.01),
        Param(name="ref", kind="numbers", default=(0.5, 0.5), low=0.0, high=1.0, step=0.01),
        _choice("red_view", ("tokens", "rules", "parts")),
        Param(name="parts", kind="whole", default=2, low=1, high=16, step=1),
        *_PPO,
        *_SAMPLING,
        *_REWARDS,
        *_LOSS,
        *_GRADIENTS,
        *_QUESTIONS,
    )
}

RECIPE_BOUND = (*tuple(name for name, param in PARAMS.items() if param.from_recipe), "constant")


@cache
def recipe_values(name: str) -> dict[str, Any]:
    """Return what a recipe says about every setting that is bound to it."""
    recipe = get_recipe(name)
    o, a = recipe.objective, recipe.advantage
    fixed = o.constant if recipe.constant_from is None else None
    return {
        "estimator": a.estimator, "ddof": a.ddof, "eps": a.eps, "scale": a.scale,
        "level": o.ratio_level, "eps_low": o.epsilon_low, "eps_high": o.epsilon_high, "delta": o.delta,
        "kl": o.kl_estimator, "beta": o.beta, "reduce": o.aggregation, "constant": fixed,
        "surrogate": o.surrogate, "klw": "weighted" if o.kl_ratio_weighted else "plain",
        "cut": "drop" if o.mask_truncated else "train",
    }  # fmt: skip


def default(name: str, recipe: str = DEFAULT_RECIPE) -> Any:
    """Return a setting's default under a recipe."""
    return recipe_values(recipe)[name] if name in RECIPE_BOUND else PARAMS[name].default


def advantage_spec(values: Mapping[str, Any]) -> AdvantageSpec:
    """Return the advantage that the settings name; what no setting says is the recipe's."""
    own = {name: values[name] for name in ("estimator", "ddof", "eps", "scale")}
    return replace(get_recipe(values["recipe"]).advantage, **own)


def objective(values: Mapping[str, Any], *, longest: int) -> Objective:
    """Return the recipe's objective with the settings put in; an unset constant is the group's longest completion."""
    base = get_recipe(values["recipe"]).objective
    return base.replace(
        surrogate=values["surrogate"],
        options=base.options if values["surrogate"] == base.surrogate else {},
        ratio_level=values["level"],
        epsilon_low=values["eps_low"],
        epsilon_high=values["eps_high"],
        delta=values["delta"],
        beta=values["beta"],
        kl_estimator=values["kl"],
        kl_ratio_weighted=values["klw"] == "weighted",
        mask_truncated=values["cut"] == "drop",
        aggregation=values["reduce"],
        constant=float(values["constant"] or max(longest, 1)),
    )
