"""The entry script: navigation and theme, nothing else. Run it with `streamlit run app/main.py`."""

import sys
from pathlib import Path

import streamlit as st

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from app import shell, state  # noqa: E402
from app.words import t  # noqa: E402

EXPLORE = {
    "advantages": ":material/bar_chart:",
    "clip": ":material/content_cut:",
    "kl": ":material/compare_arrows:",
    "reduction": ":material/functions:",
    "loss": ":material/calculate:",
    "gradients": ":material/explore:",
    "ppo": ":material/family_history:",
    "sampling": ":material/casino:",
    "rewards": ":material/fact_check:",
}


def page(name: str, icon: str, *, first: bool = False) -> st.Page:
    """Return one page of the navigation."""
    return st.Page(f"../pages/{name}.py", title=t(f"page.{name}"), icon=icon, url_path=name, default=first)


state.start(st.query_params.to_dict())
sections = {
    "": [page("home", ":material/route:", first=True), page("questions", ":material/help:")],
    t("nav.explore"): [page(name, icon) for name, icon in EXPLORE.items()],
}
if (ROOT / "pages" / "live.py").exists():
    sections[t("nav.train")] = [page("live", ":material/play_circle:")]

st.set_page_config(
    page_title=t("app.title"),
    page_icon=str(ROOT / "app" / "content" / "icon.svg"),
    layout="wide",
    initial_sidebar_state=230,
)
st.html(shell.STYLE)
here = st.navigation(sections)
state.open_page(here.url_path, st.query_params.to_dict())
shell.language_switch()
here.run()
