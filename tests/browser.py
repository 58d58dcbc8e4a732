"""Pages in headless Chromium, which tests drive by playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-headless-shell", "google-chrome", "chromium-browser")
CHROMIUM = os.environ.get("STRATA_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
"""Where Chromium is; None if there is none."""


@contextmanager
def opened(browser: Any, file: Path, width: int, height: int = 900) -> Generator[Any]:
    """The open page of a file. Whatever it says to the console, or asks from the network, fails the
    test in the end.
    """
    page, told = browser.new_page(viewport={"width": width, "height": height}), list[str]()
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("dialog", lambda dialog: told.append(dialog.message))
    page.on("request", lambda request: None if request.url.startswith(("file:", "data:"))
            else told.append(request.url))
    page.goto(file.as_uri())
    yield page
    page.close()
    assert told == []


def work_of(page: Any) -> Callable[[], float]:
    """What says for how many seconds the page was busy since it was last asked, whatever else the
    machine did then. The first answer includes the loading.
    """
    session, told = page.context.new_cdp_session(page), [0.0]
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def asked() -> float:
        found = session.send("Performance.getMetrics")["metrics"]
        before, now = told[0], next(m["value"] for m in found if m["name"] == "TaskDuration")
        told[0] = now
        return now - before

    return asked
