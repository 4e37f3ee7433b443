"""The session's view: opened groups, gestures, errors of single controls; inside a script, as the app uses it."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest


def script(body: str) -> AppTest:
    """Run `body` as a Streamlit script with `state` and the first teaching group at hand."""
    head = "from app import link, state; from app.teaching import teaching_groups\n"
    head += "four = teaching_groups()['one-of-four']\n"
    at = AppTest.from_string(head + body, default_timeout=30).run()
    assert not at.exception, at.exception
    return at


def test_a_group_from_elsewhere_is_shown_and_its_link_is_whole():
    script(
        "state.open_group(four.replace(logp=tuple(tuple(x / 3 for x in row) for row in four.logp), source='live'))\n"
        "assert state.view().base == '' and state.group().source == 'live'\n"
        "again, notes = link.from_query(link.to_query(state.view()))\n"
        "assert again == state.view() and notes == []\n"
        "state.restore_group()\n"
        "assert state.group() == four\n"
    )


def test_a_group_too_large_is_refused_and_the_last_one_stays():
    script(
        "big = four.replace(**{n: getattr(four, n) * 20 for n in"
        " ('tokens', 'rewards', 'logp', 'old_logp', 'ref_logp', 'mask', 'finish')})\n"
        "try:\n    state.open_group(big)\n    raise AssertionError\n"
        "except ValueError as error:\n    assert 'larger' in str(error)\n"
        "assert state.group() == four\n"
    )


def test_a_drag_is_one_undo_and_the_next_drag_another():
    script(
        "for value in (1.1, 1.2, 1.3):\n    state.edit_value('r', value, gesture=1)\n"
        "for value in (0.5, 0.6):\n    state.edit_value('r', value, gesture=2)\n"
        "state.undo()\nassert state.get('r') == 1.3\n"
        "state.undo()\nassert state.get('r') == 1.5 and not state.lab().undo\n"
    )


def test_a_cell_shown_beyond_the_end_of_a_list_is_edited_as_it_is_shown():
    script(
        "state.put({'kl_old': (0.6, 0.2)})\n"
        "assert state.resized_list(state.get('kl_old'), 4) == (0.6, 0.2, 0.2, 0.2)\n"
        "state.edit_value('kl_old:3', '0.5')\nassert state.get('kl_old') == (0.6, 0.2, 0.2, 0.5)\n"
        "state.edit_value('kl_old:0', '1')\nassert state.get('kl_old') == (1, 0.2, 0.2, 0.5)\n"
    )


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        *(("r", raw) for raw in ("x", "-1", "nan", "9" * 400)),
        *(("length:1", raw) for raw in ("-3", "1e9", "1.5", "")),
        ("reward:0", ""),
        ("size", "0"),
        ("size", "65"),
        ("cur:0", "2"),
        ("events", "1"),
        ("eps_low", "1.01"),
        ("drift_n", "1.5"),
    ],
)
def test_a_wrong_value_leaves_a_message_and_changes_nothing(name, raw):
    script(
        f"before = state.view()\nstate.edit_value({name!r}, {raw!r})\n"
        f"assert state.view() == before\nassert state.lab().errors[{name!r}][0] == {raw!r}\n"
        f"assert 'last value stays' in state.lab().errors[{name!r}][1]\n"
        f"state.undo()\nassert not state.lab().errors\n"
    )


def test_off_and_auto_are_values_of_optional_settings():
    script(
        "state.edit_value('delta', 3.0)\nassert state.get('delta') == 3.0\n"
        "state.edit_value('delta', None)\nassert state.get('delta') is None and state.view().chosen == {}\n"
        "state.edit_value('reward:0', None)\nassert state.group().rewards[0] is None\n"
    )


def test_a_new_recipe_drops_choices_that_belonged_to_the_old_one_only():
    script(
        "state.put({'ddof': 1, 'r': 2.0})\nstate.put({'recipe': 'trl_grpo'})\n"
        "assert state.view().chosen == {'recipe': 'trl_grpo', 'r': 2.0}\n"
        "assert state.get('eps') == 1e-4\n"
        "state.undo()\nassert state.view().chosen == {'ddof': 1, 'r': 2.0}\n"
    )


def test_the_link_wins_at_the_start_and_on_a_page_change_and_only_then():
    script(
        "state.open_page('clip', {'r': '2'})\nassert state.get('r') == 2 and not state.lab().undo\n"
        "state.put({'r': 2.5})\nassert state.query() == 'r=2.5'\n"
        "state.open_page('clip', {'r': '2'})\nassert state.get('r') == 2.5\n"
        "state.open_page('kl', {})\nassert state.get('r') == 2.5\n"
        "state.open_page('clip', {'r': '2'})\nassert state.get('r') == 2\n"
    )


def test_a_group_too_large_for_a_link_survives_back_and_forward():
    script(
        "rows = tuple(tuple(-((i * 31 + k * 17) % 997) / 991 for k in range(300)) for i in range(20))\n"
        "words = tuple(tuple(f't{i * 31 + k}' for k in range(300)) for i in range(20))\n"
        "large = type(four)(prompt='p', tokens=words, rewards=(1.0, *[0.0] * 19), logp=rows)\n"
        "state.open_page('clip', {})\nstate.open_group(large)\nown = state.group()\n"
        "assert link.too_large(state.view())\n"
        "state.open_page('kl', {})\nstate.put({'d': 1.0})\nassert 'gx=large' in state.query()\n"
        "state.open_page('clip', {'gx': 'large', 'r': '2'})\n"
        "assert state.group() == own and state.get('r') == 2 and not state.lab().notes\n"
    )
