"""Where things are: the checkout, its environment, and the folder that holds everything made at run time."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layout:
    root: Path
    var: Path

    @classmethod
    def here(cls) -> Layout:
        root = Path(__file__).resolve().parents[1]
        return cls(root, Path(os.environ.get("LAB_VAR") or root / "var").resolve())

    @property
    def environment(self) -> Path:
        return self.root / ".venv"

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    @property
    def logs(self) -> Path:
        return self.var / "log"

    @property
    def files(self) -> Path:
        """Uploads and results (``MEDIA_ROOT``)."""
        return self.var / "files"

    @property
    def record(self) -> Path:
        return self.var / "lab.json"

    @property
    def lock(self) -> Path:
        return self.var / "lab.lock"

    @property
    def secret_key(self) -> Path:
        return self.var / "secret-key"

    def login(self, database_is_embedded: bool) -> Path:
        """The first administrator's login; another database has another administrator."""
        return self.var / ("login.txt" if database_is_embedded else "login-external.txt")

    def revision(self) -> str:
        """The commit of the checkout (``LAB_REVISION`` in a container), "" where neither tells."""
        head = ["git", "-C", str(self.root), "rev-parse", "HEAD"]
        told = os.environ.get("LAB_REVISION")
        try:
            return told or subprocess.run(head, capture_output=True, text=True, check=False).stdout.strip()
        except FileNotFoundError:
            return ""

    def make(self) -> None:
        """Make the folders; that of the files is closed to other accounts, also where it was left open."""
        self.logs.mkdir(parents=True, exist_ok=True)
        self.files.mkdir(exist_ok=True)
        self.files.chmod(0o700)
