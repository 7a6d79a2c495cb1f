"""What each main page weighs, and how soon a browser paints it: at a first visit, and at the next one.

    python -m benchmarks.first_paint [--times 5] [--only home]

The fresh lab of ``benchmarks.pages``, served as ``./lab up`` serves it and read by Chromium without a window
(``LAB_CHROMIUM``): the middle of some visits, each with an empty cache, and of as many with what the one
before left in it. First paint and the end of the scripts that a page waits for are the browser's own figures,
counted from the click; bytes are as they were sent.
"""

from __future__ import annotations

import argparse
import os
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.pages import PAGES, set_up
from labtools.doctor import find_browser
from labtools.programs import answers
from labtools.testing import scratch_folder
from workers.services import free_port, temporary_servers

#: Of a page and all that it fetched: bytes as sent, and milliseconds since the navigation began.
SEEN = """async () => {
    await new Promise((done) => new PerformanceObserver(
        (list) => list.getEntriesByName("first-contentful-paint").length && done()
    ).observe({type: "paint", buffered: true}));
    const page = performance.getEntriesByType("navigation")[0];
    const all = [page, ...performance.getEntriesByType("resource")];
    return {
        paint: performance.getEntriesByName("first-contentful-paint")[0].startTime,
        ready: page.domContentLoadedEventEnd,
        server: page.responseStart,
        page: page.transferSize,
        sent: all.reduce((sum, one) => sum + one.transferSize, 0),
        requests: all.filter((one) => one.transferSize > 0).length,
    };
}"""
WIDTH = {"width": 1280, "height": 900}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5, help="visits of each page")
    parser.add_argument("--only", default="", help="pages whose name has this in it")
    arguments = parser.parse_args()
    with scratch_folder() as folder, temporary_servers(folder) as servers:
        os.environ |= {"DATABASE_URL": servers.database_url, "REDIS_URL": servers.redis_url}
        os.environ |= {"LAB_VAR": str(folder / "var"), "DJANGO_SETTINGS_MODULE": "webapp.settings.local"}
        os.environ["SECRET_KEY"] = secrets.token_urlsafe(40)
        client, root = set_up(folder)
        cookie = client.cookies["sessionid"].value
        with _serve(folder) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=os.environ.get("LAB_CHROMIUM") or find_browser(), args=["--no-sandbox"]
            )
            for name, path in PAGES.items():
                if arguments.only in name:
                    _report(name, browser, address, cookie, root + path, arguments.times)
            browser.close()


@contextmanager
def _serve(folder: Path) -> Iterator[str]:
    """The pages as ``./lab up`` serves them, with their files collected."""
    from django.core.management import call_command

    with (folder / "said.txt").open("a") as said:
        call_command("collectstatic", "--no-input", "-v0", stdout=said)
        address = f"http://127.0.0.1:{(port := free_port())}"
        command = [sys.executable, "-m", "uvicorn", "webapp.asgi:application", "--port", str(port)]
        web = subprocess.Popen(command, stdout=said, stderr=said)
    try:
        while not answers(f"{address}/healthz"):
            assert web.poll() is None, (folder / "said.txt").read_text()[-2000:]
            time.sleep(0.2)
        yield address
    finally:
        web.terminate()
        web.wait()


def _report(name: str, browser: Browser, address: str, cookie: str, path: str, times: int) -> None:
    first, again = [], []
    for _ in range(times + 1):  # the server's first answer of a page is none of them
        context = browser.new_context(viewport=WIDTH)  # type: ignore[arg-type]
        context.add_cookies([{"name": "sessionid", "value": cookie, "url": address}])
        page = context.new_page()
        first.append(_visit(page, address + path))
        again.append(_visit(page, address + path))
        context.close()
    print(f"{name:16} {_say(first[1:])}   again {_say(again[1:])}", flush=True)


def _visit(page: Page, url: str) -> Mapping[str, float]:
    answer = page.goto(url, wait_until="load")
    assert answer and answer.status == 200, url
    found: dict[str, Any] = page.evaluate(SEEN)
    return found


def _say(visits: list[Mapping[str, float]]) -> str:
    middle = {name: statistics.median(visit[name] for visit in visits) for name in visits[0]}
    page, sent = middle["page"] / 1024, middle["sent"] / 1024
    return (
        f"first paint {middle['paint']:5.0f} ms (server {middle['server']:4.0f}),"
        f" ready {middle['ready']:5.0f} ms,"
        f" {sent:6.0f} KiB in {middle['requests']:2.0f} requests (page {page:4.0f})"
    )


if __name__ == "__main__":
    main()
