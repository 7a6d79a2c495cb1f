"""`./lab worker`: a machine that works for a lab that runs elsewhere.

The first time with `--join URL`: the address from the lab's Hosts page is exchanged for this host's own
credentials, which stay in `var/host.json`. Standard library only until the environment is made.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import http.client
import json
import os
import re
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from labtools import installation, private_files, programs, record
from labtools.layout import Layout
from labtools.problems import Interrupted, Problem
from labtools.supervisor import Program, Supervisor

#: Where torch's builds for processors alone are, a tenth of the size of those for GPUs.
CPU_BUILDS = "https://download.pytorch.org/whl/cpu"
JOIN_URL = re.compile(r"(?P<lab>https?://[^#]+)/hosts/join#(?P<secret>[\w-]+)(\.(?P<pin>[0-9a-f]{64}))?")
ON_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


def worker(layout: Layout, options: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Join where asked to, make the environment, work until stopped."""
    layout.make()
    with record.claim(layout):
        if options.join:
            join_once(layout, options.join)
        lab = read_credentials(layout)
    make_environment(layout, options.torch_index)
    installation.continue_inside(layout, arguments)
    with record.claim(layout):
        return _start_and_watch(layout, lab, options.workers)


def join_once(layout: Layout, url: str) -> None:
    """Join, unless this very address was exchanged before: the command can be said again."""
    with (layout.var / "join.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_joined(layout, url):
            join(layout, url)


def join(layout: Layout, url: str) -> None:
    """Exchange the address, which works once, and keep what it was exchanged for."""
    asked = JOIN_URL.fullmatch(url)
    if asked is None:
        raise Problem(f"{url.partition('#')[0]!r} is no address to join", "copy it whole from the Hosts page")
    lab, certificate = asked["lab"], ""
    if asked["pin"]:
        certificate = str(layout.var / "lab-certificate.pem")
        private_files.write(layout.var / "lab-certificate.pem", _certificate(lab, asked["pin"]))
    elif lab.startswith("http://") and urlsplit(lab).hostname not in ON_THIS_MACHINE:
        raise Problem(
            "the address is http://: credentials would travel in the open", "use the lab's https://"
        )
    body = {"secret": asked["secret"], "edition": {"revision": layout.revision()}}
    told = _exchange(lab, body, certificate)
    if told["certificate"]:
        certificate = str(layout.var / "lab-certificate.pem")
        private_files.write(layout.var / "lab-certificate.pem", told["certificate"])
    told |= {"url": lab, "certificate": certificate, "joined_with": _digest(url)}
    if certificate:
        told["database_url"] += f"&sslrootcert={certificate}"
        told["redis_url"] += f"?ssl_cert_reqs=required&ssl_ca_certs={certificate}"
    private_files.write(layout.var / "host.json", json.dumps(told, indent=1))
    print(f"Joined {lab} as {told['name']}; the credentials are in {layout.var / 'host.json'}", flush=True)


def read_credentials(layout: Layout) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((layout.var / "host.json").read_text())
    except FileNotFoundError as error:
        raise Problem(
            "this machine has joined no lab", "./lab worker --join URL, from its Hosts page"
        ) from error
    return found


def make_environment(layout: Layout, torch_index: str | None) -> None:
    """With the torch that was asked for, else with the one for this machine's devices."""
    chosen = choose_torch_index()
    if torch_index or not chosen:
        return installation.ensure(layout, installation.RUNTIME, torch_index)
    try:
        return installation.ensure(layout, installation.RUNTIME, chosen)
    except Problem as problem:
        print(f"{problem.args[0]}\nTaking PyPI's build of torch, which is larger", flush=True)
        return installation.ensure(layout, installation.RUNTIME)


def choose_torch_index() -> str | None:
    """The builds for processors where this machine shows no NVIDIA GPU, else PyPI's, which are for CUDA."""
    if shutil.which("nvidia-smi") is None:
        return CPU_BUILDS
    listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True)
    return None if listed.returncode == 0 and "GPU" in listed.stdout else CPU_BUILDS


def _is_joined(layout: Layout, url: str) -> bool:
    try:
        return bool(read_credentials(layout)["joined_with"] == _digest(url))
    except Problem:
        return False


def _digest(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()


def _certificate(lab: str, pin: str) -> str:
    """What the lab shows, where it is what the address says that it must be."""
    place = urlsplit(lab)
    try:
        shown = ssl.get_server_certificate((place.hostname or "", place.port or 443), timeout=10)
    except OSError as error:
        raise Problem(f"{lab} does not answer: {error}", "check the address and the network") from error
    if hashlib.sha256(ssl.PEM_cert_to_DER_cert(shown)).hexdigest() != pin:
        raise Problem(f"{lab} shows another certificate than the address says", "ask who runs the lab")
    return shown


def _exchange(lab: str, asked: dict[str, Any], certificate: str) -> dict[str, Any]:
    body = json.dumps(asked).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{lab}/hosts/join", body, headers, method="POST")
    context = ssl.create_default_context(cafile=certificate or None)
    try:
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except urllib.error.HTTPError as error:
        raise Problem(f"the lab refused: {_detail(error)}", "make a new address on its Hosts page") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Problem(f"{lab} does not answer: {error}", "check the address and the network") from error


def _detail(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["detail"])
    except (ValueError, KeyError, TypeError):
        return str(error)


def _start_and_watch(layout: Layout, lab: dict[str, Any], slots: int) -> int:
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "webapp.settings.host",
        "LAB_VAR": str(layout.var),
        "PYTHONUNBUFFERED": "1",
    }
    program = Program(
        "worker",
        [str(layout.python), "-m", "workers.joined", "--concurrency", str(slots)],
        layout.logs / "worker.log",
        environment=environment,
        options={"cwd": str(layout.root)},
        stop_seconds=programs.WORKER_STOP_SECONDS,
    )

    def remember(pids: dict[str, int], troubles: dict[str, str]) -> None:
        record.write(layout, 0, pids, troubles)

    with Supervisor(changed=remember) as supervisor:
        supervisor.start(program)
        print(f"{lab['name']} works for {lab['url']}: {slots} at once; log: {program.log}", flush=True)
        print("Ctrl-C or ./lab stop ends it; its runs are taken up by others.", flush=True)
        try:
            supervisor.watch()
        except Interrupted:
            print("\nStopping the worker", flush=True)
            supervisor.stop_all()
    return 0
