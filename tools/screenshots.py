"""Pictures of every page, for a look: `make screenshots` writes them to screenshots/, light and dark, 1400 pixels wide.

`make screenshots ARGS=--readme` makes the three of the README instead, among them a live run, in docs/images/.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from tools.browser import FLAGS, ensure
from tools.run import ROOT
from tools.served import served

WIDTH = 1400
README = {"explorer": "clip?g=off-policy", "loss": "loss?g=one-of-eight&recipe=trl_dapo&loss_view=compare"}
README_HEIGHT = 860
LIVE_STEPS = 70  # far enough for curves that have risen
LARGEST = 200_000  # bytes of a picture in the README
POINTS = "(document.querySelector('.st-key-live-progress .live-plot')?.data?.[0]?.x?.length ?? 0)"


def page_names() -> list[str]:
    """Return every page, Home first."""
    return ["home", *sorted(path.stem for path in (ROOT / "pages").glob("*.py") if path.stem != "home")]


@contextmanager
def opened(browser: Browser, url: str, *, scheme: str, height: int = 900) -> Iterator[Page]:
    """Open a page in a fresh profile and wait until nothing moves any more."""
    context = browser.new_context(viewport={"width": WIDTH, "height": height}, color_scheme=scheme)
    page = context.new_page()
    page.goto(url)
    page.get_by_role("heading", level=1).first.wait_for(timeout=60_000)
    settle(page)
    yield page
    context.close()


def settle(page: Page) -> None:
    """Wait until the script has run, no part of the page is a placeholder, and pictures have been drawn."""
    page.wait_for_timeout(800)
    page.wait_for_function(
        "!document.querySelector('[data-testid=stStatusWidget], [data-testid=stSkeleton]')", timeout=60_000
    )
    page.wait_for_timeout(1200)


def whole(page: Page) -> bytes:
    """Return the whole page as PNG: Streamlit scrolls inside the window, so the window grows instead."""
    height = page.get_by_test_id("stMain").evaluate("node => node.scrollHeight")
    page.set_viewport_size({"width": WIDTH, "height": max(900, min(int(height), 6000))})
    page.wait_for_timeout(700)
    return page.screenshot()


def compact(png: bytes) -> bytes:
    """Return a picture with as many colours as a page needs. RuntimeError if it is still too large for a README."""
    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(192, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    if out.tell() > LARGEST:
        raise RuntimeError(f"a picture of {out.tell()} bytes is too large for the README (at most {LARGEST})")
    return out.getvalue()


def save(folder: Path, name: str, png: bytes) -> None:
    """Write a picture and say where it is."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.png"
    path.write_bytes(png)
    print(f"{path.relative_to(ROOT)}  {len(png) // 1000} kB", flush=True)


def every_page(browser: Browser, url: str, *, names: Sequence[str], language: str) -> None:
    """Take every page in both themes."""
    for name in names:
        for scheme in ("light", "dark"):
            query = "" if language == "en" else f"?lang={language}"
            with opened(browser, f"{url}/{'' if name == 'home' else name}{query}", scheme=scheme) as page:
                save(ROOT / "screenshots", f"{name}-{scheme}{'' if language == 'en' else '-' + language}", whole(page))


def for_readme(browser: Browser, url: str) -> None:
    """Take the README's three: an explorer page, the loss, and a live run after it has learned something."""
    folder = ROOT / "docs" / "images"
    for name, path in README.items():
        with opened(browser, f"{url}/{path}", scheme="light", height=README_HEIGHT) as page:
            save(folder, name, compact(page.screenshot()))
    with opened(browser, f"{url}/live", scheme="light", height=README_HEIGHT) as page:
        page.locator(".st-key-live-start button").first.click()
        page.mouse.move(WIDTH - 1, README_HEIGHT - 1)  # off the button, so that no help text is shown
        page.wait_for_function(f"{POINTS} >= {LIVE_STEPS}", timeout=300_000)
        save(folder, "live", compact(page.screenshot()))
        page.locator(".st-key-live-stop button").first.click()
        page.wait_for_timeout(3000)


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--readme", action="store_true", help="the README's three pictures instead of every page")
    parser.add_argument("--pages", nargs="*", default=page_names(), choices=page_names(), metavar="PAGE")
    parser.add_argument("--language", default="en", help="the pages' language")
    chosen = parser.parse_args()
    path = ensure()  # before Playwright starts: the search may start it too
    with sync_playwright() as driver, served() as url:
        browser = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        if chosen.readme:
            for_readme(browser, url)
        else:
            every_page(browser, url, names=chosen.pages, language=chosen.language)
        browser.close()


if __name__ == "__main__":
    main()
