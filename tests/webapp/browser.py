"""A browser and a real ASGI server for tests that need both: scripts run, event streams stream."""

from __future__ import annotations

import asyncio
import atexit
import base64
import functools
import os
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.db import connection, connections
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Locator,
    Page,
    Route,
    sync_playwright,
)

from labtools.doctor import find_browser
from tests.webapp.cast import signed_in
from webapp.accounts.models import User
from workers.services import free_port

CHROMIUM = Path(os.environ.get("LAB_CHROMIUM") or find_browser() or "/usr/bin/chromium")


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


#: A figure is pictured so often before it must stand still.
MOST_PICTURES = 10

#: What is no error of the page: a form that was refused, and a request in flight as the person went elsewhere
#: (htmx tells each of those twice; a request that failed has a line of its own beside ``afterRequest``).
NO_ERRORS = ("status of 422", "htmx:sendAbort", "htmx:afterRequest")


@functools.cache
def chromium() -> tuple[Browser, asyncio.AbstractEventLoop]:
    """Start the browser of this process, whose start takes as long as a page's figures, and its loop."""
    playwright = sync_playwright().start()
    atexit.register(playwright.stop)
    arguments = ["--no-sandbox", "--disable-gpu"]
    browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=arguments)
    return browser, asyncio.get_running_loop()


@contextmanager
def new_context(**options: Any) -> Iterator[BrowserContext]:
    """Open a context of the process' browser: cookies, storage and cache of its own.

    Outside of it no loop counts as running, since Django refuses queries beside one.
    """
    browser, loop = chromium()
    asyncio._set_running_loop(loop)
    try:
        context = browser.new_context(**options)
        try:
            yield context
        finally:
            context.close()
            connections.close_all()  # this loop has connections of its own
    finally:
        asyncio._set_running_loop(None)


@contextmanager
def browser_page(width: int = 1280, theme: str = "light", expected: Collection[str] = ()) -> Iterator[Page]:
    """A page in headless Chromium. An error in a script or on the console fails the test, unless it has one
    of the ``expected`` words.
    """
    if not CHROMIUM.exists():
        pytest.skip(f"no browser at {CHROMIUM} (apt install chromium, or set LAB_CHROMIUM)")
    colors = "dark" if theme == "dark" else "light"
    with new_context(viewport={"width": width, "height": 900}, color_scheme=colors) as context:
        page = context.new_page()
        errors: list[str] = []
        page.add_init_script(VIOLATIONS)
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda line: errors.extend(error_of(line, (*NO_ERRORS, *expected))))
        yield page
    assert errors == [], errors


def error_of(line: ConsoleMessage, expected: Collection[str]) -> list[str]:
    """What a line of the console says is wrong, if anything, and of which address."""
    is_error = line.type == "error" or "Content Security" in line.text
    wanted = is_error and not any(words in line.text for words in expected)
    return [f"{line.text} ({line.location['url']})"] if wanted else []


def ink(page: Page, place: Locator) -> float:
    """The share of pixels of ``place`` that have not the color of most of them."""
    picture = base64.b64encode(_picture_of(place)).decode()
    script = """async (source) => {
        const picture = new Image(); picture.src = source; await picture.decode();
        const canvas = new OffscreenCanvas(picture.width, picture.height), context = canvas.getContext("2d");
        context.drawImage(picture, 0, 0);
        const pixels = new Uint32Array(context.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
        const counts = new Map();
        for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) || 0) + 1);
        return 1 - Math.max(...counts.values()) / pixels.length;
    }"""
    return float(page.evaluate(script, f"data:image/png;base64,{picture}"))


def _picture_of(place: Locator) -> bytes:
    """A figure that follows its runs may be replaced while its picture is taken: then the new one's."""
    for _ in range(MOST_PICTURES):
        try:
            return place.screenshot()
        except Error as error:
            if "not attached" not in str(error):
                raise
    return place.screenshot()


#: What another theme can spoil: it changes colors and nothing else.
OF_COLORS = ["color-contrast", "link-in-text-block"]


#: What passed is not described, which takes most of the time, and of a fault its rule is enough.
FAULTS = """async options => {
    const { violations } = await axe.run({ resultTypes: ["violations"], ...options });
    return violations.filter(({ impact }) => ["serious", "critical"].includes(impact)).map(({ id }) => id);
}"""


def serious(page: Page) -> list[tuple[str, str]]:
    """Serious faults for assistive technology of the page that is open, by theme and rule."""
    page.evaluate(Axe().axe_script)
    found = []
    for theme, options in (("light", {}), ("dark", {"runOnly": OF_COLORS})):
        page.emulate_media(color_scheme=theme)
        found += [(theme, rule) for rule in page.evaluate(FAULTS, options)]
    return found


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
