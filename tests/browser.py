"""Open a page in Debian's Chromium, and note what it asked for and complained of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Opened:
    """A page that is open, with everything it said and asked for since."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    """Console warnings and errors, uncaught exceptions, dialogs."""


@contextmanager
def open_page(
    path: Path, *, fragment: str = "", width: int = 1280, height: int = 900, **options: Any
) -> Iterator[Opened]:
    """Open a file from disk in a headless Chromium with a profile of its own.

    `options` go to Playwright's context, e.g. `color_scheme="dark"`, `java_script_enabled=False`.
    """
    if not CHROMIUM.exists():  # CI installs it; a developer may do without the page's tests
        pytest.skip(f"{CHROMIUM} is not installed (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        try:
            context = browser.new_context(viewport={"width": width, "height": height}, **options)
            opened = Opened(context.new_page())
            page = opened.page
            page.on("request", lambda request: opened.requests.append(request.url))
            page.on("pageerror", lambda error: opened.complaints.append(f"exception: {error}"))
            page.on(
                "console",
                lambda message: (
                    opened.complaints.append(f"{message.type}: {message.text}")
                    if message.type in ("error", "warning")
                    else None
                ),
            )

            def note_dialog(dialog: Any) -> None:
                opened.complaints.append(f"dialog: {dialog.message}")
                dialog.dismiss()

            page.on("dialog", note_dialog)
            page.goto(path.resolve().as_uri() + fragment)
            yield opened
        finally:
            browser.close()
