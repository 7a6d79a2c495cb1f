"""The account PostgreSQL runs as when we are root, which it refuses to be."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
# A process started with this one capability may pass folders that only root can enter (a checkout in
# /root, say) without changing anybody's folder permissions.
PASS_ANY_FOLDER = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")


@dataclass(frozen=True)
class Account:
    """An ordinary account; `passes_any_folder` where the checkout lies in folders closed to it."""

    name: str
    uid: int
    gid: int
    passes_any_folder: bool = False

    @property
    def prefix(self) -> tuple[str, ...]:
        """What to write before a command so that it runs as this account."""
        if not self.passes_any_folder:
            return ()
        identity = (f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups", "--pdeathsig=keep")
        return ("setpriv", *identity, *PASS_ANY_FOLDER, "--")

    def popen_options(self) -> dict[str, Any]:
        """The same for `subprocess`, where no prefix is needed."""
        if self.passes_any_folder:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def take(self, folder: Path) -> None:
        """Make the account the owner of a folder and all in it (PostgreSQL insists on owning its data)."""
        if folder.stat().st_uid == self.uid:
            return
        for path in [*folder.rglob("*"), folder]:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


class NoAccount(Exception):
    """Root has no account that can reach the files PostgreSQL needs."""


def account_for(folder: Path, needs: tuple[Path, ...]) -> Account | None:
    """None for an ordinary user; for root the checkout's owner, or `nobody` where root owns it too.

    Raises NoAccount where neither file permissions nor `setpriv` let that account reach `folder` and `needs`.
    """
    if os.geteuid() != 0:
        return None
    account = _owner_or_nobody(CHECKOUT)
    if all(_can_read(account, path) for path in needs) and _can_enter(account, folder):
        return account
    if shutil.which("setpriv") is None:
        raise NoAccount(f"the account {account.name} cannot enter {folder.parent}")
    return Account(account.name, account.uid, account.gid, passes_any_folder=True)


def _owner_or_nobody(folder: Path) -> Account:
    owner = folder.stat().st_uid
    try:
        entry = pwd.getpwuid(owner) if owner != 0 else pwd.getpwnam("nobody")
    except KeyError:
        # initdb looks the account's name up, so an owner without a name will not do.
        entry = pwd.getpwnam("nobody")
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _can_read(account: Account, path: Path) -> bool:
    return _test_as(account, "-r", path)


def _can_enter(account: Account, folder: Path) -> bool:
    return _test_as(account, "-x", folder)


def _test_as(account: Account, question: str, path: Path) -> bool:
    return subprocess.run(["test", question, str(path)], cwd="/", **account.popen_options()).returncode == 0
