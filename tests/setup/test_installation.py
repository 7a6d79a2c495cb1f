"""Installing once: what is read from pip, what is remembered, and which errors are told."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import pytest

from labtools import installation
from labtools.layout import Layout
from labtools.problems import Problem
from labtools.progress import PipProgress, ProgressLine


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    for name in ("requirements.txt", "requirements-dev.txt", "constraints.txt"):
        (tmp_path / name).write_text(f"# {name}\n")
    made = Layout(tmp_path, tmp_path / "var")
    made.make()
    return made


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_pip_is_followed_from_collecting_to_writing(tmp_path: Path) -> None:
    now = [0.0]
    progress = PipProgress(lambda: tmp_path, clock=lambda: now[0])
    (tmp_path / "pip-24.0.dist-info").mkdir()
    for line in (
        "Collecting numpy==2.4.6",
        "Collecting Django==5.2",
        "  Downloading Django-5.2-py3-none-any.whl (8.3 MB)",
    ):
        progress.read(line + "\n")
    now[0] = 4.0
    assert progress.describe() == "Installing packages: 2 collected, fetching Django (8.3 MB) · 4 s"

    progress.read("Installing collected packages: numpy, Django\n")
    (tmp_path / "numpy-2.4.6.dist-info").mkdir()
    now[0] = 9.0
    assert progress.describe() == "Installing packages: 1 of 2 written · 9 s"
    assert progress.summary() == "Installed packages: 2 of 2 · 9 s"


def test_a_package_asked_for_twice_counts_once(tmp_path: Path) -> None:
    progress = PipProgress(lambda: tmp_path, clock=lambda: 0.0)
    progress.read("Collecting typing_extensions>=4 (from django)\n")
    progress.read("Requirement already satisfied: typing-extensions>=4 in ./lib\n")
    assert progress.describe() == "Installing packages: 1 collected · 0 s"


def test_on_a_terminal_the_line_is_rewritten_in_place_and_cut_to_the_width(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "11")
    screen = Terminal()
    line = ProgressLine(screen)
    line.show("one of twenty")
    line.close("done")
    assert screen.getvalue() == "\r\033[Kone of twe\r\033[Kdone\n"


def test_elsewhere_a_line_is_printed_at_most_every_fifteen_seconds() -> None:
    now = [0.0]
    log = io.StringIO()
    line = ProgressLine(log, clock=lambda: now[0])
    for second in range(31):
        now[0] = second
        line.show(f"after {second} s")
    line.close("done")
    assert log.getvalue().splitlines() == ["after 0 s", "after 15 s", "after 30 s", "done"]


def test_requirements_are_installed_again_only_when_their_text_changes(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    installs: list[list[str]] = []
    monkeypatch.setattr(installation, "environment_works", lambda _: True)
    monkeypatch.setattr(installation, "_install", lambda _, files, __: installs.append(list(files)))
    layout.environment.mkdir()

    installation.ensure(layout, installation.RUNTIME)
    installation.ensure(layout, installation.RUNTIME)
    installation.ensure(layout, installation.RUNTIME_AND_TESTS)
    (layout.root / "requirements.txt").write_text("numpy==2.4.6\n")
    installation.ensure(layout, installation.RUNTIME_AND_TESTS)
    (layout.root / "constraints.txt").write_text("idna==3.20\n")
    installation.ensure(layout, installation.RUNTIME_AND_TESTS)

    both = ["requirements.txt", "requirements-dev.txt"]
    assert installs == [["requirements.txt"], ["requirements-dev.txt"], ["requirements.txt"], both]


def test_an_install_that_failed_is_tried_again(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise Problem("no network", "wait")

    monkeypatch.setattr(installation, "environment_works", lambda _: True)
    monkeypatch.setattr(installation, "_install", fail)
    layout.environment.mkdir()
    with pytest.raises(Problem, match="no network"):
        installation.ensure(layout, installation.RUNTIME)
    assert not installation.is_up_to_date(layout, installation.RUNTIME)


def test_an_environment_whose_python_is_gone_does_not_count_as_one(layout: Layout) -> None:
    layout.python.parent.mkdir(parents=True)
    layout.python.symlink_to(layout.root / "removed")
    assert not installation.environment_works(layout)


def test_the_torch_index_serves_torch_alone_at_the_pinned_version(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(installation, "_pip", lambda _, arguments, *index: asked.append(list(arguments)))
    (layout.root / "requirements.txt").write_text("# runtime\ntorch==2.13.0\nnumpy==2.4.6\n")
    installation._install(layout, ["requirements.txt"], "https://index.example/cpu")
    assert asked == [
        ["--no-deps", "--index-url", "https://index.example/cpu", "torch==2.13.0"],
        ["-r", str(layout.root / "requirements.txt")],
    ]


def test_a_full_disk_is_told_before_anything_is_installed(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(layout.root)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=2**30))
    with pytest.raises(Problem, match=r"1\.0 GiB free where the checkout is, the packages need 3 GiB"):
        installation.ensure(layout, installation.RUNTIME)
    assert not layout.environment.exists()


def test_a_python_without_the_venv_module_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # None in the place of a module makes its import fail, as Debian does by leaving both out.
    monkeypatch.setitem(sys.modules, "venv", None)
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    with pytest.raises(Problem, match="lacks the module venv and ensurepip") as caught:
        installation.require_venv_module()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert caught.value.remedy == f"on Debian or Ubuntu: sudo apt install python{version}-venv"


@pytest.mark.parametrize(
    ("output", "what", "remedy"),
    [
        (
            "ERROR: Could not install: [Errno 28] No space left on device",
            "the disk became full",
            "free some space",
        ),
        (
            "WARNING: Retrying after connection broken by 'NewConnectionError'\n"
            "ERROR: No matching distribution found for numpy",
            "No matching distribution found for numpy",
            "check the network",
        ),
        (
            "ERROR: No matching distribution found for torch==2.13.0",
            "found for torch==2.13.0",
            "there is no build",
        ),
        ("Killed", "it gave no reason", "read /log/pip.log"),
    ],
)
def test_a_failure_of_pip_becomes_one_line_and_what_to_do(output: str, what: str, remedy: str) -> None:
    problem = installation.explain_pip(output, Path("/log/pip.log"))
    assert what in str(problem.args[0])
    assert problem.remedy.startswith(remedy)


def test_an_index_without_the_pinned_torch_is_named_without_its_password() -> None:
    output = "ERROR: No matching distribution found for torch==2.13.0"
    problem = installation.explain_pip(output, Path("/log/pip.log"), "https://me:hunter2@index.example/cpu")
    assert problem.args[0] == (
        "pip could not install the packages: No matching distribution found for torch==2.13.0 "
        "at https://me@index.example/cpu"
    )
    assert problem.remedy.startswith("check --torch-index (or LAB_TORCH_INDEX), or leave it out")
