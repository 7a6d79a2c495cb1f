"""The commands of `./lab`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from experiments.client.server import LabError
from labtools import (
    backup,
    control,
    deployment,
    doctor,
    harden,
    installation,
    listening,
    mlflow_export,
    mlflow_store,
    remote,
    repeat,
    testing,
    up,
    wandb_folder,
    worker,
)
from labtools.layout import Layout
from labtools.problems import Interrupted, from_operating_system

DEFAULT_PORT = 8000
MOST_WORKERS = 8


def main(arguments: Sequence[str]) -> int:
    """The exit code of the command; a Problem is told in two lines and gives 1."""
    options, extra = parser().parse_known_args(arguments)
    if extra and options.command != "test":
        parser().error(f"unknown argument: {extra[0]}")
    _interrupt_on_signals()
    try:
        return dispatch(options, extra, arguments)
    except Interrupted as interruption:
        print("\nlab: interrupted", file=sys.stderr)
        return interruption.exit_code
    except LabError as problem:
        print(f"lab: {problem}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read our output has left (`./lab doctor | head`); Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        problem_behind = from_operating_system(error)
        if problem_behind is None:
            raise
        print(f"lab: {problem_behind}", file=sys.stderr)
        return 1


def dispatch(options: argparse.Namespace, extra: Sequence[str], arguments: Sequence[str]) -> int:
    layout = Layout.here()
    match options.command:
        case "up":
            return up.up(layout, options, arguments)
        case "env":
            return deployment.write_environment(layout, options.name, options.hosts)
        case "worker":
            return worker.worker(layout, options, arguments)
        case "test" | "walks" | "harden":
            return dispatch_tests(layout, options, extra, arguments)
        case "status":
            return control.status(layout)
        case "stop":
            return control.stop(layout)
        case "doctor":
            if installation.environment_works(layout):
                installation.continue_inside(layout, arguments)
            return doctor.doctor(layout, options.port)
        case "backup" | "restore":
            installation.ensure(layout, installation.RUNTIME)
            installation.continue_inside(layout, arguments)
            if options.command == "backup":
                return backup.backup(layout, options.file)
            return backup.restore(layout, options.file, options.replace)
        case _:
            return dispatch_to_server(layout, options, arguments)


def dispatch_tests(
    layout: Layout, options: argparse.Namespace, extra: Sequence[str], arguments: Sequence[str]
) -> int:
    """The commands that check the code itself."""
    match options.command:
        case "test":
            return testing.run(layout, options.fast, extra, arguments)
        case "walks":
            return testing.walk(layout, options.letters, arguments)
        case _:
            return harden.harden(layout, options.names, options.out, arguments)


def dispatch_to_server(layout: Layout, options: argparse.Namespace, arguments: Sequence[str]) -> int:
    """The commands that speak to a lab over its REST API."""
    match options.command:
        case "run":
            return remote.run(options.file, options.server)
        case "repeat":
            installation.ensure(layout, installation.RUNTIME)
            return repeat.repeat(layout, options.run, options.server)
        case "import-mlflow":
            installation.ensure(layout, installation.RUNTIME)
            installation.continue_inside(layout, arguments)
            return mlflow_store.import_store(options.store, options.server, options.artifacts)
        case "export-mlflow":
            installation.ensure(layout, installation.RUNTIME)
            installation.continue_inside(layout, arguments)
            return mlflow_export.export(options.folder, options.server, options.search, options.documents)
        case "import-wandb":
            installation.ensure(layout, installation.RUNTIME)
            installation.continue_inside(layout, arguments)
            return wandb_folder.import_folder(options.folder, options.server)
        case "sync":
            installation.ensure(layout, installation.RUNTIME)
            installation.continue_inside(layout, arguments)
            return remote.sync(options.folder, options.server)
        case _:
            return remote.import_outcomes(options.files, options.server)


def parser() -> argparse.ArgumentParser:
    lab = argparse.ArgumentParser(prog="lab", description="Set up, start and test MLSys Policy Lab.")
    commands = lab.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_up(commands.add_parser("up", help="set everything up and start it; Ctrl-C ends it"))
    secrets = commands.add_parser("env", help="make .env for docker compose, with random secrets")
    secrets.add_argument("name", metavar="NAME", help="the lab is reached by, such as lab.example.org")
    secrets.add_argument("--hosts", metavar="ADDRESS", help="of this machine, where other machines may join")
    _add_worker(commands.add_parser("worker", help="carry out runs for a lab on another machine"))
    test = commands.add_parser("test", help="run all checks and tests; further arguments go to pytest")
    test.add_argument("--fast", action="store_true", help="leave out the tests marked slow")
    walks = commands.add_parser("walks", help="walk the first hour in a browser; prints clicks and seconds")
    walks.add_argument("letters", nargs="*", type=walk_letter, metavar="LETTER", help="these only")
    long = commands.add_parser("harden", help="the long versions of tests of faults, walls and hosts; hours")
    long.add_argument("names", nargs="*", type=check_name, metavar="CHECK", help=", ".join(harden.CHECKS))
    long.add_argument("--out", type=Path, metavar="FILE", default=Path("docs/evidence/harden.json"))
    commands.add_parser("status", help="what runs; exit code 3 where nothing does")
    commands.add_parser("stop", help="end the lab that runs in this checkout")
    check = commands.add_parser("doctor", help="look for what would stop a start")
    check.add_argument("--port", type=port_number, default=DEFAULT_PORT)
    keep = commands.add_parser("backup", help="write the database and the files to one archive")
    back = commands.add_parser("restore", help="make this checkout's lab the one in an archive")
    for command in (keep, back):
        command.add_argument("file", type=Path, metavar="FILE.tar")
    back.add_argument("--replace", action="store_true", help="even where this lab has data, which goes")
    submit = commands.add_parser("run", help="submit a run to a server, follow it, print its outcome")
    submit.add_argument("file", type=Path, metavar="SPEC.json")
    hand_in = commands.add_parser("import", help="upload outcomes computed elsewhere")
    hand_in.add_argument("files", type=Path, nargs="+", metavar="OUTCOME.json")
    again = commands.add_parser("repeat", help="carry a server's run out again here: the same figures?")
    again.add_argument("run", metavar="RUN", help="its id, as on its page")
    late = commands.add_parser("sync", help="send the logs of own runs that this host could not send")
    late.add_argument("folder", type=Path, nargs="?", metavar="FOLDER", help="where programs kept them")
    store = commands.add_parser("import-mlflow", help="bring the runs of an MLflow store into the lab")
    store.add_argument("store", metavar="STORE", help="a SQLite file, postgresql://..., or a folder mlruns")
    store.add_argument(
        "--artifacts", type=Path, metavar="FOLDER", help="where the runs' files are, if not next to the store"
    )
    out = commands.add_parser("export-mlflow", help="write a project's runs as a folder that MLflow reads")
    out.add_argument("folder", type=Path, metavar="FOLDER", help="empty, new, or of an export before")
    out.add_argument("--search", default="", metavar="TEXT", help="only runs that it finds, as on their page")
    out.add_argument("--documents", action="store_true", help="with the whole outcome of each run")
    runs = commands.add_parser("import-wandb", help="bring the runs of a folder of W&B into the lab")
    runs.add_argument("folder", type=Path, metavar="FOLDER", help="wandb, or what it lies in")
    for command in (submit, hand_in, again, late, store, out, runs):
        command.add_argument("--server", required=True, metavar="URL")
    return lab


def _add_up(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--port", type=port_number, default=DEFAULT_PORT, help="of the web page [%(default)s]"
    )
    command.add_argument(
        "--listen",
        metavar="ADDRESS[:PORT]",
        type=listening.address,
        help="of this machine, where other hosts may join, by TLS: PORT and the two after it [8443]",
    )
    command.add_argument(
        "--no-demo", dest="demo", action="store_false", help="start without the demo project"
    )
    _add_workers_and_index(command)


def _add_worker(command: argparse.ArgumentParser) -> None:
    command.add_argument("--join", metavar="URL", help="the first time: from the lab's Hosts page")
    _add_workers_and_index(command)


def _add_workers_and_index(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--workers",
        type=worker_count,
        default=min(os.cpu_count() or 1, MOST_WORKERS),
        metavar="N",
        help="runs carried out at once [%(default)s]",
    )
    command.add_argument(
        "--unsafe",
        action="store_true",
        help="as root, carry out runs even where only limits can be put around them (docs/security.md)",
    )
    command.add_argument(
        "--torch-index",
        metavar="URL",
        type=index_address,
        default=os.environ.get("LAB_TORCH_INDEX") or None,
        help="package index to take torch from, such as that of the CPU-only builds",
    )


def index_address(text: str) -> str:
    if not text.startswith(("https://", "http://", "file://")):
        raise argparse.ArgumentTypeError(f"{text!r} is not the address of a package index (https://...)")
    return text


def walk_letter(text: str) -> str:
    if len(text) != 1 or text not in testing.WALKS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a walk ({', '.join(testing.WALKS)})")
    return text


def check_name(text: str) -> str:
    if text not in harden.CHECKS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a check ({', '.join(harden.CHECKS)})")
    return text


def port_number(text: str) -> int:
    return _integer(text, 1, 65535, "a port")


def worker_count(text: str) -> int:
    return _integer(text, 1, 256, "a number of workers")


def _integer(text: str, low: int, high: int, what: str) -> int:
    if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what} ({low} to {high})")
    return int(text)


def _interrupt_on_signals() -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    # Under nohup the hang-up is ignored on purpose.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, interrupt)
