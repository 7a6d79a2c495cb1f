"""The walk-through of ``docs/adding-a-policy.md`` works as printed, and touches no other file."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "adding-a-policy.md").read_text()


def files_on_the_page() -> dict[str, str]:
    return dict(re.findall(r"^`(experiments/\S+)`:\n```\w+\n(.*?)^```", PAGE, re.M | re.S))


def test_the_two_files_of_the_page_are_all_it_takes(tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "experiments", tmp_path / "experiments", ignore=shutil.ignore_patterns("__pycache__")
    )
    written = files_on_the_page()
    assert len(written) == 2
    for name, text in written.items():
        (tmp_path / name).write_text(text)

    def experiments(*arguments: str) -> str:
        command = [sys.executable, "-m", "experiments", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert "swap_largest" in experiments("list", "--family", "memory")
    rows = json.loads(experiments("claims", "--policy", "swap_largest", "--run", "--json"))
    assert [row["verdict"] for row in rows] == ["reproduced"], rows
