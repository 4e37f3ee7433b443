"""What the tests of pages with many pictures share: presets as links, pictures checked, snippets run, words found."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterable
from pathlib import Path

import plotly.graph_objects as go
from streamlit.testing.v1 import AppTest

from app import presets
from app.params import PARAMS
from app.words import catalogue, sections, t

ROOT = Path(__file__).resolve().parents[2]


def link_of(page: str, preset: str) -> dict[str, str]:
    """Return the query parameters of a preset."""
    data = presets.presets(page)[preset]
    query = {name: PARAMS[name].write(value) for name, value in data["set"].items()}
    return {**query, **({"g": data["group"]} if "group" in data else {})}


def sound(at: AppTest) -> None:
    """No exception reached the page, and every picture is one that Plotly accepts."""
    assert not at.exception, [e.value for e in at.exception]
    assert at.title[0].value
    for spec in pictures(at):
        figure = go.Figure(spec)
        assert figure.data
        json.dumps(spec, allow_nan=False)


def pictures(at: AppTest) -> list[dict]:
    """Return the pictures on the page as data."""
    data = [json.loads(element.proto.json) for element in at.get("bidi_component") if element.proto.json]
    return [own["figure"] for own in data if "figure" in own]


def metrics(at: AppTest) -> dict[str, str]:
    """Return the read-outs by their labels' keys; by every key, where several have the same words."""
    shown = {m.label: m.value for m in at.metric}
    labels = {key: text for key, text in catalogue().items() if key.startswith("readout.")}
    return {key.removeprefix("readout."): shown[text] for key, text in labels.items() if text in shown}


def number(text: str) -> float:
    """Return the first number in a read-out."""
    match = re.search(r"[-+]?[0-9][0-9\u2009]*\.?[0-9]*(?:e[-+]?[0-9]+)?", text.replace("\N{MINUS SIGN}", "-"))
    assert match, text
    return float(match.group().replace("\u2009", ""))


def printed(code: str) -> list[float]:
    """Run a snippet as it stands and return the numbers that it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "snippet", "exec"), {"__name__": "snippet"})
    return [float(x) for x in re.findall(r"(?<![\w.])-?[0-9]+\.?[0-9]*(?:e[-+]?[0-9]+)?", out.getvalue())]


def missing(values: Iterable[str], found: list[float]) -> list[str]:
    """Return the read-outs whose number was not printed, to the decimals that are shown."""
    return [text for text in values if not any(same(number(text), x, text) for x in found)]


def same(shown: float, exact: float, text: str) -> bool:
    """Return whether `exact`, rounded as `text` is, gives the number shown."""
    digits = re.search(r"\.([0-9]+)", text)
    unit = 10.0 ** -len(digits.group(1)) if digits else 1.0
    power = re.search(r"e.?([0-9]+)", text.replace("\N{MINUS SIGN}", "-"))
    return abs(shown - exact) <= 0.51 * unit * (10.0 ** -int(power.group(1)) if power else 1.0)


def code_of(page: str, *more: str) -> str:
    """Return a page's code: its script, its views and its pictures."""
    paths = [ROOT / "pages" / f"{page}.py", *(ROOT / "app" / "views" / page).glob("*.py")]
    paths += [ROOT / "app" / "figures" / f"{name}.py" for name in (page, *more)]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def own_settings(code: str) -> set[str]:
    """Return the settings that have a label and whose name stands in the code."""
    labelled = {key.split(".")[1] for key in catalogue() if re.fullmatch(r"param\.[a-z_0-9]+\.label", key)}
    return {name for name in labelled & set(PARAMS) if f'"{name}"' in code} - {"recipe"}


def check_words(page: str, *more: str) -> None:
    """Every key in the code has its words; every section of the prose is used, and none is LaTeX by accident."""
    code = code_of(page, *more)
    keys = set(re.findall(r"\bt\(\s*\"([a-z_.0-9-]+)\"", code))
    keys |= {f"readout.{name}" for name in re.findall(r"Readout\(\s*\"([a-z_0-9]+)\"", code)}
    keys |= {f"preset.{page}.{name}" for name in presets.names(page)}
    assert sorted(keys - set(catalogue())) == []
    for name in own_settings(code):
        wanted = ["label", *map(str, PARAMS[name].choices)]
        if PARAMS[name].optional and PARAMS[name].kind != "packed":
            wanted += ["none", "unset"]
        assert [word for word in wanted if f"param.{name}.{word}" not in catalogue()] == [], name
    for name, text in sections(page).items():
        stem = name.rsplit("-", 1)
        assert f'"{name}"' in code or f'"{stem[0]}-{{' in code or name == "question", name
        assert "$" not in text, name


def typed_wrong(at: AppTest, page: str, key: str) -> str:
    """Open a view's check, type a number that cannot be right, and return what the page says."""
    at.session_state[f"check-{key}"] = True
    at.run()
    at.number_input(key=f"answer-{key}").set_value(-12345.678).run()
    sound(at)
    assert [w.value for w in at.warning][-1].startswith(t("check.wrong"))
    return [w.value for w in at.warning][-1]
