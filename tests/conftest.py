"""What all tests share."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import settings

from experiments.core.garbage import collect_rarely

#: How long an example takes says what else the machine does, not whether the code is right.
settings.register_profile("lab", deadline=None)
settings.load_profile("lab")

collect_rarely()

ROOT = Path(__file__).resolve().parent.parent
#: Bytes of this process after garbage was last looked for, and by how many more it may have grown since.
resident = 0
GROWTH = 2**29
#: They have no servers and no browser: what they take is processor time.
DOMAIN_TESTS = ROOT / "tests" / "experiments"
SHARED_DATA = Path(os.environ.get("LAB_SHARED_DATA", ROOT.parent / "shared" / "data"))


def pytest_collection(session: pytest.Session) -> None:
    """Import a share of the files first in each of several processes, which rewrite what tests assert: files
    that another process has rewritten meanwhile are read as they are.
    """
    number, count = (os.environ.get(f"PYTEST_XDIST_WORKER{end}", "") for end in ("", "_COUNT"))
    if number and session.config.args == session.config.getini("testpaths"):
        files = sorted((ROOT / "tests").rglob("test_*.py"))
        for file in files[int(number.removeprefix("gw")) :: int(count)]:
            # What is wrong with a file, or missing for it, is said as it is collected.
            with contextlib.suppress(Exception, pytest.skip.Exception):
                importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """Put aside what collection made, which stays: the garbage collector need not go through it again."""
    put_aside()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """The domain's garbage is looked for by its size (below). Pages and workers have connections that may
    only end with what held them.
    """
    if item.path.is_relative_to(DOMAIN_TESTS):
        gc.disable()
    else:
        gc.enable()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Free garbage after a file where the process has grown: to look for it each time that many objects were
    made took a twelfth of the domain tests' processor time.
    """
    global resident
    if (
        nextitem is not None
        and nextitem.path != item.path
        and psutil.Process().memory_info().rss > resident + GROWTH
    ):
        put_aside()
        resident = psutil.Process().memory_info().rss


def put_aside() -> None:
    """Free all garbage; what is left need not be gone through again."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """The process ends; pytest goes through all that is left five times more."""
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deal files out to processes: after one that waits, for servers and browsers, two that compute.

    Of both kinds those with long tests begin first, so that none is left to run alone at the end.
    """
    long = {item.path for item in items if any(item.get_closest_marker(mark) for mark in ("slow", "browser"))}
    files = sorted(dict.fromkeys(item.path for item in items), key=lambda path: path not in long)
    computing = [path for path in files if path.is_relative_to(DOMAIN_TESTS)]
    waiting = [path for path in files if not path.is_relative_to(DOMAIN_TESTS)]
    turn = {path: 2 * place for place, path in enumerate(waiting)}
    turn |= {path: place // 2 * 2 + 1 for place, path in enumerate(computing)}
    order = {path: place for place, path in enumerate(sorted(turn, key=turn.__getitem__))}
    items.sort(key=lambda item: order[item.path])


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real traces beside the project; tests that need it are skipped where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the real traces (../shared/data) are not beside this checkout")
    return SHARED_DATA


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> None:
    """The database of this process, which tests that commit leave as migrating did."""
    from tests.emptying import empty_after_tests

    empty_after_tests()


@pytest.fixture(autouse=True)
def _whole_floats() -> Iterator[None]:
    """Measured runs round denormal numbers to zero for their process; the tests after them get them back."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_flush_denormal(False)
