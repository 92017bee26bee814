"""Pages in a real browser: Debian's chromium, driven by playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

DESKTOP, PHONE = (1280, 1000), (390, 844)
"""Width and height in pixels."""

CONTRAST = """
selector => {
  const channels = colour => colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const luminance = colour => {
    const [r, g, b] = channels(colour).map(c => c / 255)
      .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const element = document.querySelector(selector);
  const ink = luminance(getComputedStyle(element).color);
  const paper = luminance(getComputedStyle(document.body).backgroundColor);
  return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
}
"""
"""Contrast of a selector's text with the page."""


@contextmanager
def running_browser() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no browser (Debian: chromium)")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, path: Path, size: tuple[int, int], **options: Any) -> Iterator[Page]:
    """Yield a file in a browser without a network; it must ask for nothing and not complain.

    Nor must it be wider than the window.
    """
    width, height = size
    context = browser.new_context(
        offline=True,
        viewport={"width": width, "height": height},
        permissions=["clipboard-read", "clipboard-write"],
        **options,
    )
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url))
    page.goto(path.as_uri())
    assert [path.as_uri()] == complaints
    complaints.clear()
    yield page
    assert width >= page.evaluate("document.documentElement.scrollWidth")
    context.close()
    assert [] == complaints


class Elements(HTMLParser):
    """Collects elements, and fails where tags do not match."""

    VOID = frozenset({"meta", "line", "circle", "rect", "polyline", "path"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert tag == self.open.pop()
