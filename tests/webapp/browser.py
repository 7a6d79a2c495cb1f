"""A browser and a real ASGI server for tests that need both: scripts run, event streams stream."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.db import connection, connections
from playwright.sync_api import Page, Route, sync_playwright

from tests.webapp.cast import signed_in
from webapp.accounts.models import User
from workers.services import free_port

CHROMIUM = Path(os.environ.get("LAB_CHROMIUM", "/usr/bin/chromium"))


@contextmanager
def serving() -> Iterator[str]:
    """The application in a thread of this process, so that it sees the test's database; gives its address."""
    config = uvicorn.Config(get_asgi_application(), port=free_port(), log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{config.port}"
    finally:
        server.force_exit = True
        server.should_exit = True
        thread.join(10)
        _end_other_sessions()


def _end_other_sessions() -> None:
    """The server's threads are gone but not their connections, which would keep the test database from being
    dropped.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


#: So long a test waits for what should come at once (milliseconds): a machine may have much else to do.
PATIENCE = 600_000
#: A refusal of the Content-Security-Policy is an error of the page.
VIOLATIONS = """document.addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) =>
    setTimeout(() => { throw new Error(`${violatedDirective} refused ${blockedURI}`); }));"""


@contextmanager
def browser_page(width: int = 1280, theme: str = "light") -> Iterator[Page]:
    """A page in headless Chromium; an error in a script fails the test."""
    if not CHROMIUM.exists():
        pytest.skip(f"no browser at {CHROMIUM} (apt install chromium, or set LAB_CHROMIUM)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        page = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if theme == "dark" else "light"
        ).new_page()
        errors: list[str] = []
        page.add_init_script(VIOLATIONS)
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda line: errors.append(line.text) if "Content Security" in line.text else None)
        try:
            yield page
        finally:
            browser.close()
            connections.close_all()  # this loop has connections of its own
    assert errors == []


def widen_fonts(page: Page, percent: int) -> None:
    """Draw every letter of the pages to come ``percent`` as wide and as high; lines keep their height."""

    def answer(route: Route) -> None:
        faces = route.fetch().text()
        assert "@font-face {" in faces
        wider = faces.replace("@font-face {", f"@font-face {{ size-adjust: {percent}%;")
        route.fulfill(content_type="text/css", body=wider)

    page.route("**/css/fonts.css", answer)


RESTORE = """() => new Promise(done => {
  const link = document.querySelector("link[href*='css/fonts.css']");
  link.addEventListener("load", () => document.fonts.ready.then(done));
  link.href += "?plain";
})"""


def restore_fonts(page: Page) -> None:
    """Draw the page that is open with letters as they come; ``widen_fonts`` holds for the next."""
    page.evaluate(RESTORE)


def enter(page: Page, address: str, user: User) -> None:
    """Give the browser a session of ``user``'s: the form of the sign-in has a test of its own."""
    session = signed_in(user).cookies[settings.SESSION_COOKIE_NAME].value
    page.context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": address}])


def sign_in(page: Page, address: str, name: str, password: str = "pw") -> None:
    page.goto(f"{address}/accounts/login/")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/t/**")
