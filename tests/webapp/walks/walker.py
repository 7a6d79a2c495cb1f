"""Somebody who walks the pages: clicks and keys as the browser received them, a stopwatch, and what every
page on the way is held to.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Dialog, FilePayload, Locator, Page

from tests.webapp.browser import MOST_PICTURES, ink, serious
from tests.webapp.walks.laboratory import WHOLE, Laboratory
from webapp.accounts.models import Project
from webapp.navigation import project_url

#: The share of a drawn figure that is not ground, and milliseconds between two looks at one.
DRAWN, BETWEEN_PICTURES = 0.01, 300
#: Of hands, not of scripts: a mouse button or a key that goes down.
HANDS = """for (const kind of ["mousedown", "keydown"]) document.addEventListener(kind, (event) => {
    if (event.isTrusted) window.handMoved(kind);
}, { capture: true });"""


@dataclass(frozen=True)
class Mark:
    """When something was there: seconds on the clock, the worker's processor seconds, and what is wanted."""

    what: str
    seconds: float
    processor_seconds: float
    wanted: float | None


class Walker:
    """One walk of a member from the home of ``project``."""

    def __init__(self, page: Page, laboratory: Laboratory, project: Project, refusals: list[str]) -> None:
        self.page, self.laboratory, self.project = page, laboratory, project
        self.refusals = refusals
        self.hands: list[str] = []
        self.chosen = self.pictures = 0
        self.most: int | None = None
        self.marks: list[Mark] = []
        self.began, self.used, self.aside = 0.0, 0.0, 0.0
        page.expose_function("handMoved", lambda kind: self.hands.append(kind))
        page.add_init_script(HANDS)
        page.on("dialog", self._consent)

    @property
    def clicks(self) -> int:
        """An entry of a list is two: one opens the list."""
        return self.hands.count("mousedown") + 2 * self.chosen

    @property
    def keys(self) -> int:
        return self.hands.count("keydown")

    def begin(self) -> None:
        """Open the home page and start the stopwatch."""
        self.page.goto(self.laboratory.address + project_url(self.project, "project"))
        self.used = self.laboratory.used.seconds
        self.began, self.aside = time.monotonic(), 0.0

    def click(self, name: str, role: Any = "button", inside: str = "main") -> None:
        self.page.locator(inside).get_by_role(role, name=name, exact=True).click()

    def choose_file(self, file: FilePayload | Path) -> None:
        with self.page.expect_file_chooser() as chooser:
            self.page.locator("#id_files").click()
        chooser.value.set_files(file)

    def choose(self, where: Locator, value: str) -> None:
        """Take an entry of a list; browsers draw lists outside of the page, so that no hand is seen there."""
        self.chosen += 1
        where.select_option(value)

    def write(self, where: Locator, text: str) -> None:
        """Click into a field and write instead of what stands in it."""
        where.click()
        where.press("Control+a")
        where.press_sequentially(text)

    def mark(self, what: str, wanted: float | None = None) -> None:
        seconds = time.monotonic() - self.began - self.aside
        used = self.laboratory.used.seconds - self.used
        self.marks.append(Mark(what, seconds, used, wanted))

    def go_on(self, what: str, until: Locator, wanted: float | None = None) -> None:
        """Wait for the runs that have been started; as a test, end them."""
        self.spare()
        if WHOLE:
            until.wait_for()
            self.mark(what, wanted)

    def spare(self) -> None:
        """As a test, end what nobody waits for."""
        if not WHOLE:
            self.laboratory.end_all_runs()

    def end(self, most: int | None = None, keys: int = 0) -> None:
        """No more than ``most`` clicks were needed, and so many keys."""
        self.most = most
        assert most is None or self.clicks <= most
        assert self.keys <= keys

    def look(self) -> None:
        """The page that is open has no serious fault in either theme; looking counts for no time.

        With ``LAB_SHOTS`` it is pictured there.
        """
        if folder := os.environ.get("LAB_SHOTS"):
            with self._apart():
                self.pictures += 1
                self.page.screenshot(path=f"{folder}/walk-{self.project}-{self.pictures}.png", full_page=True)
        if WHOLE:
            return
        with self._apart():
            faults = serious(self.page)
            self.page.emulate_media(color_scheme="light")
            assert faults == [], (self.page.url, faults)

    def see(self, figure: str) -> None:
        """Wait for the figure, which has ink: one that follows its runs is blank while it is drawn anew."""
        place = self.page.locator(figure).first
        place.wait_for()
        with self._apart():
            for _ in range(MOST_PICTURES):
                if ink(self.page, place) > DRAWN:
                    return
                self.page.wait_for_timeout(BETWEEN_PICTURES)
        raise AssertionError(f"{figure} of {self.page.url} is blank")

    def find_refused(self, address: str) -> None:
        """The page says that there is nothing for this reader, and where else to go."""
        self.refusals.append("status of 4")
        self.page.goto(address)
        self.page.locator("main").get_by_role("link").first.wait_for()

    def _consent(self, dialog: Dialog) -> None:
        """A dialog of the browser asks for one more click."""
        self.hands.append("mousedown")
        dialog.accept()

    @contextmanager
    def _apart(self) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.aside += time.monotonic() - began
