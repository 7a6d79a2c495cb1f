"""`./lab doctor`: look at everything a start needs, change nothing, say what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable

from labtools import installation, preflight, record
from labtools.layout import Layout
from labtools.problems import Problem

Check = tuple[str, Callable[[], str]]
#: Debian's headless build takes a fifth less time for the same pages.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser")


class Hint(Exception):
    """Not in the way of a start, but something the user may want to know."""


def doctor(layout: Layout, port: int) -> int:
    """Print one line for each check; 1 where one of them would stop a start."""
    failed = 0
    for name, check in checks(layout, port):
        try:
            print(f"ok    {name}: {check()}")
        except Hint as hint:
            print(f"hint  {name}: {hint}")
        except Problem as problem:
            failed += 1
            print(f"FAIL  {name}: {problem}")
    return 1 if failed else 0


def checks(layout: Layout, port: int) -> list[Check]:
    return [
        ("python", lambda: f"{sys.version.split()[0]} ({sys.executable})"),
        ("venv module", _venv_module),
        ("disk", lambda: _disk(layout)),
        ("environment", lambda: _environment(layout)),
        ("folder for data", lambda: _data_folder(layout)),
        ("running lab", lambda: _running(layout)),
        ("port", lambda: _port(layout, port)),
        ("database", lambda: _external(layout, "DATABASE_URL", preflight.require_database)),
        ("message broker", lambda: _external(layout, "REDIS_URL", preflight.require_redis)),
        ("sandbox", _sandbox),
        ("browser for tests", _browser),
        ("gpu", _gpu),
    ]


def _venv_module() -> str:
    installation.require_venv_module()
    return "present"


def _disk(layout: Layout) -> str:
    free = shutil.disk_usage(layout.root).free
    gib = installation.GIB
    if not installation.environment_works(layout):
        installation.require_disk_space(layout)
        if free < installation.NEEDED_BYTES_CUDA:
            raise Hint(
                f"{free / gib:.1f} GiB free: enough for a CPU build of torch (--torch-index), a CUDA build "
                f"needs {installation.NEEDED_BYTES_CUDA / gib:.0f} GiB"
            )
    if free < gib:
        raise Problem(f"{free / gib:.2f} GiB free", "free some space before the database runs out of it")
    return f"{free / gib:.1f} GiB free"


def _environment(layout: Layout) -> str:
    if not installation.environment_works(layout):
        raise Hint(f"{layout.environment} is not there yet; ./lab up makes it")
    if not installation.is_up_to_date(layout, installation.RUNTIME):
        raise Hint("the requirement files have changed; the next ./lab up installs the difference")
    return f"{layout.environment} is up to date"


def _data_folder(layout: Layout) -> str:
    folder = layout.var if layout.var.exists() else layout.root
    if not os.access(folder, os.W_OK):
        raise Problem(f"{folder} cannot be written", f"start ./lab as its owner, {folder.owner()}")
    return str(layout.var)


def _running(layout: Layout) -> str:
    running = record.read_record(layout)
    if record.is_held(layout):
        return f"runs at {running.url}" if running else "is just starting"
    if running:
        raise Hint("an earlier lab was killed; ./lab up or ./lab stop clears up after it")
    return "none"


def _port(layout: Layout, port: int) -> str:
    running = record.read_record(layout)
    if record.is_held(layout) and running and running.port == port:
        return f"{port}, used by the running lab"
    preflight.require_free_port(port)
    return f"{port} is free"


def _external(layout: Layout, variable: str, require: Callable[[str], None]) -> str:
    url = os.environ.get(variable)
    if not url:
        return "embedded"
    if not installation.is_inside(layout):
        raise Hint(f"{variable} is set, and can be checked once ./lab up has made the environment")
    require(url)
    return f"{preflight.without_password(url)} answers"


def _sandbox() -> str:
    if not shutil.which("bwrap"):
        raise Hint("bubblewrap is missing, so trials are shut in less tightly; sudo apt install bubblewrap")
    tried = subprocess.run(["bwrap", "--ro-bind", "/", "/", "--unshare-all", "true"], capture_output=True)
    if tried.returncode:
        raise Hint("bubblewrap may not make user namespaces here, so trials are shut in less tightly")
    return "bubblewrap works"


def find_browser() -> str | None:
    """The browser of the tests."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def _browser() -> str:
    found = find_browser()
    if not found:
        raise Hint(
            "chromium is missing, so ./lab test leaves the browser tests out; sudo apt install chromium"
        )
    return found


def _gpu() -> str:
    if not shutil.which("nvidia-smi"):
        raise Hint("no NVIDIA driver: measured runs use the CPU")
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    listed = subprocess.run(query, capture_output=True, text=True)
    if listed.returncode or not listed.stdout.strip():
        raise Hint("nvidia-smi is there but shows no GPU")
    return "; ".join(listed.stdout.strip().splitlines())
