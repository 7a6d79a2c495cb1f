"""A lab with a web server of its own, and hosts that join it: each has folder, cache and credentials."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings
from django.db import connection
from django.test import Client

from labtools import worker
from labtools.layout import Layout
from tests.conftest import ROOT
from tests.proxy import Proxy
from tests.workers.crew import until
from webapp.accounts.models import Membership, Project, Role, User
from workers.services import free_port

#: A lease that a slow network does not outlast, and that the test does not wait for long.
QUICK = {"RUN_LEASE_SECONDS": "5", "RUN_BEAT_SECONDS": "0.3", "RUN_IDLE_SECONDS": "0.5"}


@dataclass
class Lab:
    """The web app on the test's database and broker, and hosts that reach them by networks of their own.

    ``idle_seconds``: for how long hosts leave what nobody waits for, the other forms of a captured step.
    """

    folder: Path
    idle_seconds: float = 0.0
    networks: dict[str, list[Proxy]] = field(default_factory=dict)
    hosts: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    _web: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        database, broker = connection.settings_dict, urlsplit(settings.REDIS_URL)
        place = f"{database['HOST']}:{database['PORT']}"
        settings.HOSTS_URL = f"http://127.0.0.1:{self.port}"
        settings.HOSTS_DATABASE_URL = f"postgresql://{place}/{database['NAME']}"
        settings.HOSTS_REDIS_URL = f"redis://{broker.hostname}:{broker.port}{broker.path}"
        environment = {
            "DATABASE_URL": settings.HOSTS_DATABASE_URL.replace(
                "//", f"//{database['USER']}:{database['PASSWORD']}@"
            ),
            "REDIS_URL": settings.REDIS_URL,
            "LAB_VAR": str(self.folder / "lab"),
            "DJANGO_SETTINGS_MODULE": "webapp.settings.test",
            "HOSTS_DATABASE_URL": settings.HOSTS_DATABASE_URL,
            "HOSTS_REDIS_URL": settings.HOSTS_REDIS_URL,
        }
        web = ["uvicorn", "webapp.asgi:application", "--port", str(self.port), "--lifespan", "off"]
        self._web = self._spawn("web", ["-m", *web, "--no-access-log"], environment)
        until(self._answers, 60, "the lab's web server answers")

    def add_host(
        self, project: Project, name: str, delay: float = 0.0, rate: float = 0.0, slots: int = 2
    ) -> Path:
        """As on the page, then as ``./lab worker --join``: the host's folder, its worker at work.

        ``delay`` (s, one way) and ``rate`` (bytes/s) are those of its network, ``slots`` its runs at once.
        """
        folder = self.folder / name
        folder.mkdir(parents=True)
        worker.join(Layout(ROOT, folder), address_for(project, name))
        told = json.loads((folder / "host.json").read_text())
        self.networks[name] = []
        for key in ("url", "database_url", "redis_url"):
            parts = urlsplit(told[key])
            proxy = Proxy((str(parts.hostname), int(parts.port or 0)), delay, rate)
            self.networks[name].append(proxy)
            told[key] = told[key].replace(f"{parts.hostname}:{parts.port}", f"127.0.0.1:{proxy.port}")
        (folder / "host.json").write_text(json.dumps(told))
        self.start_host(name, slots)
        return folder

    def start_host(self, name: str, slots: int = 2, **own: str) -> None:
        environment = {"DJANGO_SETTINGS_MODULE": "webapp.settings.host", "LAB_VAR": str(self.folder / name)}
        # A capture takes seconds for each of many models.
        environment |= {"CAPTURE_AT_ONCE": "0", "IDLE_SECONDS": str(self.idle_seconds)}
        command = ["-m", "workers.joined", "--concurrency", str(slots)]
        self.hosts[name] = self._spawn(name, command, {**environment, **QUICK, **own})

    def kill_host(self, name: str) -> None:
        """``kill -9``; nobody is told."""
        self.hosts[name].kill()
        self.hosts.pop(name).wait()

    def log_of(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def close(self) -> None:
        for process in self.hosts.values():
            process.send_signal(signal.SIGTERM)
        for process in self.hosts.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._web is not None:
            self._web.kill()
            self._web.wait()
        for proxy in chain(*self.networks.values()):
            proxy.close()

    def _spawn(self, name: str, command: list[str], own: Mapping[str, str]) -> subprocess.Popen[bytes]:
        rest = {key: value for key, value in os.environ.items() if key not in ("DATABASE_URL", "REDIS_URL")}
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *command], cwd=ROOT, env=rest | dict(own), stdout=log, stderr=log
            )

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def address_for(project: Project, name: str) -> str:
    """The address that the page of hosts shows an administrator, once."""
    administrator, made = User.objects.get_or_create(username="root", is_superuser=True)
    if made:
        Membership.objects.create(team=project.team, user=administrator, role=Role.ADMIN)
    client = Client()
    client.force_login(administrator, backend="django.contrib.auth.backends.ModelBackend")
    page = client.post(f"/t/{project.team.slug}/{project.slug}/hosts/add", {"name": name})
    command: str = page.context["command"]
    assert command.startswith("./lab worker --join '"), page.content.decode()
    return command.removeprefix("./lab worker --join '").removesuffix("'")
