"""How fast the explorer's pages are in a browser, beside the least that Streamlit needs: `python -m benchmarks.pages`.

Every page and the bare app (benchmarks/bare_app.py: one slider, a chart of one point) are measured in the same browser
and the same run. In the browser's own clock, medians:

    drag       a slider that is held is moved once: milliseconds until the picture shows it
    updates    a slider that is dragged all the time: pictures a second
    key        an arrow key on the slider: milliseconds until the picture shows it
    open       the link in a fresh browser profile, on a server that has served the page before: milliseconds until the
               picture is on the screen
    switch     a click in the menu: milliseconds until the next page's picture is on the screen

Aims on two quiet cores: 8 updates a second, 1.5 times the bare app's time for an update, a page within 3 seconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

from playwright.sync_api import Browser, Page, sync_playwright

from tools.browser import FLAGS, ensure
from tools.served import served

WAIT = 20_000  # milliseconds that a picture may take before the measurement fails
WATCH = """selector => {
  const look = () => document.querySelector(selector)?.innerHTML;
  const watch = window.watch = { seen: 0, last: look(), shown: 0, asked: 0 };
  const tick = () => {
    const now = look();
    if (now && now !== watch.last) { watch.last = now; watch.seen += 1; watch.shown = performance.now(); }
    requestAnimationFrame(tick);
  };
  tick();
  for (const kind of ["pointermove", "keydown"])
    document.addEventListener(kind, (event) => { watch.asked = event.timeStamp; }, { capture: true });
}"""
FIRST = """selector => new Promise((done) => {
  const tick = () => document.querySelector(selector) ? done(performance.now()) : requestAnimationFrame(tick);
  tick();
})"""
SWITCH = """([link, selector]) => new Promise((done) => {
  const start = performance.now();
  document.querySelector(link).click();
  const tick = () => document.querySelector(selector) ? done(performance.now() - start) : requestAnimationFrame(tick);
  tick();
})"""


@dataclass(frozen=True)
class Case:
    """A page to measure: its path, the slider to move, what of its picture changes, and the page to come from."""

    name: str
    path: str
    slider: str
    picture: str
    before: str = "home"


BARE = Case("bare", "", "x", ".st-key-picture-bare .scatterlayer .point", "other")
CASES = (
    Case("advantages", "advantages", "reward:1", ".st-key-picture-advantages .barlayer .point"),
    Case("clip", "clip", "r", ".st-key-picture-clip .scatterlayer .point"),
    Case("kl", "kl", "d", ".st-key-picture-kl .scatterlayer .point"),
    Case("reduction", "reduction", "length:0", ".st-key-picture-reduction .barlayer .point"),
    Case("loss", "loss", "beta", ".st-key-picture-loss-totals .barlayer .point"),
)


@dataclass(frozen=True)
class Times:
    """What was measured of one page, in milliseconds and pictures a second."""

    drag: float
    updates: float
    key: float
    open: float
    switch: float


def layer(selector: str) -> str:
    """Return the part of the picture that holds the changing marks."""
    return selector.removesuffix(" .point")


@contextmanager
def opened(browser: Browser, url: str, case: Case) -> Iterator[Page]:
    """Open the page in a fresh profile and wait until it is idle."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(WAIT)
    page = context.new_page()
    page.goto(f"{url}/{case.path}")
    page.locator(case.picture).first.wait_for(state="attached")
    page.locator(f".row[data-id='{case.slider}'] input[type=range]").wait_for()
    page.wait_for_timeout(1500)
    yield page
    context.close()


def places(page: Page, case: Case) -> Callable[[float], tuple[float, float]]:
    """Return where on the screen the slider's handle is for a share of its width."""
    slider = page.locator(f".row[data-id='{case.slider}'] input[type=range]")
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    assert box is not None
    return lambda share: (box["x"] + 7 + (box["width"] - 14) * share, box["y"] + box["height"] / 2)


def answered(page: Page, act: Callable[[], None]) -> float:
    """Do something and return the milliseconds from its event to the picture that shows it."""
    page.evaluate("watch.before = watch.seen")
    act()
    page.wait_for_function("watch.seen > watch.before")
    took = page.evaluate("watch.shown - watch.asked")
    page.wait_for_timeout(250)  # the answer's later messages
    return float(took)


def dragged(page: Page, case: Case, *, repeat: int, seconds: float) -> tuple[float, float]:
    """Return the latency of one step of a drag, and the pictures a second of a drag that goes on and on."""
    at = places(page, case)
    page.mouse.move(*at(0.5))
    page.mouse.down()
    shares = [0.3 + 0.4 * ((7 * k) % 10) / 10 for k in range(1, repeat + 1)]
    steps = [answered(page, lambda share=share: page.mouse.move(*at(share))) for share in shares]
    before, start = page.evaluate("[watch.seen, performance.now()]")
    for k in range(int(seconds * 50)):
        page.mouse.move(*at(0.1 + 0.8 * abs(((k / 80) % 2) - 1)))
        page.wait_for_timeout(20)
    after, end = page.evaluate("[watch.seen, performance.now()]")
    page.mouse.up()
    return statistics.median(steps), 1e3 * (after - before) / (end - start)


def pressed(page: Page, case: Case, *, repeat: int) -> float:
    """Return the latency of an arrow key."""
    page.wait_for_timeout(1000)
    page.locator(f".row[data-id='{case.slider}'] input[type=range]").focus()
    keys = ["ArrowLeft", "ArrowRight"] * ((repeat + 1) // 2)
    return statistics.median(answered(page, lambda key=key: page.keyboard.press(key)) for key in keys)


def first_picture(browser: Browser, url: str, case: Case) -> float:
    """Return the milliseconds from the navigation to the first picture, in a fresh profile."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(WAIT)
    page = context.new_page()
    page.goto(f"{url}/{case.path}", wait_until="commit")
    took = page.evaluate(FIRST, case.picture)
    context.close()
    return float(took)


def switched(page: Page, case: Case) -> float:
    """Return the milliseconds from a click in the menu to the picture of the page."""
    nav = "[data-testid='stSidebarNav'] a[href$='/{}']"
    elsewhere = nav.format("" if case.before == "home" else case.before)
    page.locator(elsewhere).first.click()
    page.locator(case.picture).first.wait_for(state="detached" if case is not BARE else "attached")
    page.wait_for_timeout(1200)
    here = nav.format("" if case is BARE else case.path)
    if case is BARE:  # both of its pages have the same picture: wait for a new one
        page.evaluate("document.querySelectorAll('.js-plotly-plot').forEach((node) => node.classList.add('old'))")
        return float(page.evaluate(SWITCH, [here, ".js-plotly-plot:not(.old) .point"]))
    return float(page.evaluate(SWITCH, [here, case.picture]))


def measured(browser: Browser, url: str, case: Case, *, repeat: int, seconds: float) -> Times:
    """Return everything about one page."""
    few = max(3, repeat // 4)
    with opened(browser, url, case) as page:
        page.evaluate(WATCH, layer(case.picture))
        drag, updates = dragged(page, case, repeat=repeat, seconds=seconds)
        key = pressed(page, case, repeat=repeat)
        switch = statistics.median(switched(page, case) for _ in range(few))
    opening = statistics.median(first_picture(browser, url, case) for _ in range(few))
    return Times(drag, updates, key, opening, switch)


def line(name: str, own: Times, bare: Times) -> str:
    """Return a row of the table: each time with its ratio to the bare app's."""
    cells = []
    for field in fields(Times):
        value, least = getattr(own, field.name), getattr(bare, field.name)
        ratio = least / value if field.name == "updates" else value / least
        cells.append(f"{value:8.1f} {ratio:5.2f}" if field.name == "updates" else f"{value:8.0f} {ratio:5.2f}")
    return f"{name:11}" + " |".join(cells)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", nargs="*", default=[case.name for case in CASES], help="pages to measure")
    parser.add_argument("--repeat", type=int, default=16, help="steps and key presses for each page")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a drag")
    chosen = parser.parse_args()
    how = {"repeat": chosen.repeat, "seconds": chosen.seconds}
    path = ensure()  # before Playwright starts: the search may start it too
    heads = ("drag ms", "updates/s", "key ms", "open ms", "switch ms")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; medians of {chosen.repeat}; x: times the bare app's")
    print(f"{'':11}" + " |".join(f"{head:>8}     x" for head in heads))
    with sync_playwright() as driver, served("benchmarks/bare_app.py") as bare_url, served() as url:
        browser = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        bare = measured(browser, bare_url, BARE, **how)
        print(line("bare", bare, bare), flush=True)
        for case in CASES:
            if case.name in chosen.pages:
                measured(browser, url, case, repeat=2, seconds=0.5)  # the server's first visit
                print(line(case.name, measured(browser, url, case, **how), bare), flush=True)
        again = measured(browser, bare_url, BARE, **how)
        print(line("bare, again", again, bare))
        browser.close()


if __name__ == "__main__":
    main()
