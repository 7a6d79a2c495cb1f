"""A run of one's own program: a context manager and a decorator that log it."""

from __future__ import annotations

import atexit
import base64
import functools
import inspect
import math
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import UUID, uuid4

from experiments.client.environment import (
    describe_device,
    describe_difference,
    describe_environment,
    memory_figures,
)
from experiments.client.log_file import LogFile, default_folder
from experiments.client.sender import Sender, Transfer, send_left
from experiments.client.server import LabError, Server
from experiments.client.shown import picture_bytes, plain_table

#: Seconds between two looks at the memory: a part of those that the run has lasted, within these bounds.
MEMORY_OFTEN, MEMORY_EVERY, MEMORY_PART = 0.02, 10.0, 0.25
#: Seconds that the end waits for the server.
PATIENCE = 15.0
LONGEST_REASON = 4000
#: Characters of what has a name.
LONGEST_RUN, LONGEST_EXPERIMENT, LONGEST_FIGURE, LONGEST_PARAM = 80, 160, 60, 120
MOST_PARAMS, MOST_TAGS = 1000, 20
#: A tag, and the name of a figure, as a search of runs has them.
TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
FIGURE = re.compile(r'[^\s()<>=!,:"]+')
Function = Callable[..., Any]


class OwnRun:
    """Logs a program's figures by step, used with ``with`` or as ``@lab.log(...)`` before a function.

    Without a server everything stays on this host's disk until ``./lab sync`` or the next run sends it.
    """

    def __init__(
        self,
        server: Server | None,
        name: str,
        params: Mapping[str, Any] | None = None,
        experiment: str | None = None,
        tags: Sequence[str] = (),
        seed: int = 0,
        hardware: str = "",
        folder: Path | None = None,
    ) -> None:
        self.server, self.name = server, check_name(name, LONGEST_RUN)
        self.experiment = None if experiment is None else check_name(experiment, LONGEST_EXPERIMENT)
        self.params, self.hardware = flatten(params or {}), hardware
        for told in self.params:
            check_name(told, LONGEST_PARAM)
        if len(self.params) > MOST_PARAMS:
            raise LabError(f"{len(self.params)} parameters are too many", f"at most {MOST_PARAMS}")
        if not isinstance(seed, int) or not -(2**63) <= seed < 2**63:
            raise LabError(f"{seed!r:.40} is no seed", "an integer of 64 bits")
        self.seed = seed
        self.tags = [check_tag(tag) for tag in tags]
        if len(self.tags) > MOST_TAGS:
            raise LabError(f"{len(self.tags)} tags are too many", f"at most {MOST_TAGS}")
        self.folder = folder or default_folder()
        self.id: UUID = uuid4()
        self.file: LogFile | None = None
        self.sender: Sender | None = None
        self.started, self.remembered, self.process = 0.0, 0.0, os.getpid()
        self.last_step: int | None = None
        self.lock = threading.Lock()

    @property
    def should_stop(self) -> bool:
        """Whether somebody asked it on its page to end. It goes on until the program looks."""
        return self.sender is not None and self.sender.transfer.stop

    def begin(self) -> OwnRun:
        """Open the log; ``with`` does it."""
        url, project = (self.server.url, self.server.project) if self.server else ("", "")
        self.file = LogFile.create(self.folder, self.id, url, project)
        told: dict[str, Any] = {
            "name": self.name,
            "experiment": self.experiment,
            "params": self.params,
            "hardware": (self.hardware or describe_device())[:120],
            "seed": self.seed,
            "tags": self.tags,
            "environment": describe_environment(),
            "diff": _clean(describe_difference()),
        }
        self.started = told["started"] = time.time()
        self.file.write({"begin": {key: value for key, value in told.items() if value is not None}})
        if self.server is not None:
            self.sender = Sender(Transfer(self.server, self.file))
            threading.Thread(target=_send_left, args=(self.folder, self.server), daemon=True).start()
        atexit.register(self._forgotten)
        return self

    def log(self, step: int, values: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Figures at ``step``: numbers by name, with parts as in ``train/loss``.

        Tensors of one element and numpy numbers are numbers.
        """
        moment = time.time()
        figures = {name: _number(name, value) for name, value in {**(values or {}), **more}.items()}
        self.last_step = check_step(step)
        if moment - self.remembered >= seconds_between(self.remembered - self.started):
            self.remembered = moment
            figures |= memory_figures()
        self._write([self.last_step, moment, figures])

    def table(self, step: int, name: str, rows: Any, columns: Sequence[str] | None = None) -> None:
        """A small table at ``step``: a DataFrame, a list of dicts, or rows with their ``columns``.

        At most 1,000 rows of 50 columns; what was logged of a name at a step last stands there.
        """
        names, values = plain_table(rows, columns)
        told = {"name": check_figure(name), "step": check_step(step), "columns": names, "rows": values}
        self._write({"table": told})

    def image(self, step: int, name: str, image: Any) -> None:
        """A picture at ``step``: the path or bytes of a PNG, JPEG or WebP, or an array.

        An array has rows of points: gray, or three or four colors each; bytes, or numbers from 0 to 1. At
        most 512 KiB as a file.
        """
        data = base64.b64encode(picture_bytes(image)).decode()
        self._write({"image": {"name": check_figure(name), "step": check_step(step), "data": data}})

    def progress(self, done: float, total: float = 1.0, words: str = "") -> None:
        """How far the program is, for its bar and the time left."""
        fraction = done / total if total else 0.0
        if not math.isfinite(fraction):
            raise LabError(f"{done} of {total} is no progress", "two finite numbers")
        self._write({"progress": [fraction, _clean(words)[:120]]})

    def tag(self, *names: str) -> None:
        self._write({"tags": [check_tag(name) for name in names]})

    def attach(self, path: str | Path) -> None:
        """A file for the run's page: a profiler trace, a checkpoint's config.

        It is copied at once and sent with the log.
        """
        self._open().add_file(Path(path))

    def end(self, state: str = "succeeded", reason: str = "", patience: float | None = None) -> bool:
        """Close the log; whether the server has all of it.

        For that it waits ``patience`` seconds, ``PATIENCE`` where none are given.
        """
        file = self._open()
        if self.last_step is not None:
            self._write([self.last_step, time.time(), memory_figures()])
        self._write({"end": {"state": state, "reason": _clean(reason)[-LONGEST_REASON:], "at": time.time()}})
        atexit.unregister(self._forgotten)
        self.file = None
        arrived = self.sender is not None and self.sender.finish(PATIENCE if patience is None else patience)
        if arrived:
            file.remove()
        else:
            sys.stderr.write(f"lab: the log of {self.name} is kept in {file.path}; ./lab sync sends it\n")
        if self.sender is None or self.sender.done.is_set():
            file.close()
        return arrived

    def __enter__(self) -> OwnRun:
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.file is None:
            return
        if error is None or (isinstance(error, SystemExit) and not error.code):
            self.end()
        elif isinstance(error, KeyboardInterrupt):
            self.end("cancelled", "interrupted")
        else:
            self.end("failed", "".join(traceback.format_exception(kind, error, trace)))

    def __call__(self, function: Function) -> Function:
        """``function`` as a run of its own at each call, which it gets as ``run``; its arguments are
        parameters.
        """
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call_as_run(*given: Any, **named: Any) -> Any:
            bound = signature.bind_partial(*given, **named)
            bound.apply_defaults()
            params = {key: value for key, value in bound.arguments.items() if key != "run"}
            own = OwnRun(
                self.server,
                self.name,
                {**self.params, **params},
                self.experiment,
                self.tags,
                self.seed,
                self.hardware,
                self.folder,
            )
            with own:
                return function(*given, **named, **({"run": own} if "run" in signature.parameters else {}))

        return call_as_run

    def _open(self) -> LogFile:
        if self.file is None:
            raise LabError(f"the run {self.name} is not open", "log inside of `with lab.log(...) as run:`")
        return self.file

    def _write(self, record: Any) -> None:
        with self.lock:
            self._open().write(record)

    def _forgotten(self) -> None:
        """The program ends and has not said how; a process that it forked says nothing of it."""
        if self.file is not None and os.getpid() == self.process:
            self.end("cancelled", "the program ended without saying how")


def _send_left(folder: Path, server: Server) -> None:
    """Logs of earlier programs; a server that is away gets them another time."""
    try:
        send_left(folder, server)
    except (LabError, OSError):
        return


def seconds_between(lasted: float) -> float:
    """Return how long the memory is not looked at again where the run had ``lasted`` so many seconds."""
    return min(MEMORY_EVERY, max(MEMORY_OFTEN, MEMORY_PART * lasted))


def check_name(name: Any, longest: int) -> str:
    """``name``; ``LabError`` where a page could not show it."""
    if not isinstance(name, str) or not 0 < len(name) <= longest or not name.isprintable() or name.isspace():
        raise LabError(f"{name!r:.80} is no name", f"a line of 1 to {longest} characters")
    return name


def check_tag(tag: str) -> str:
    """``tag``; ``LabError`` where a search could not name it."""
    if not TAG.fullmatch(tag):
        raise LabError(f"{tag!r:.80} is no tag", "letters, digits, dots, dashes and underscores, at most 40")
    return tag


def _clean(text: str) -> str:
    """Without NUL, which no database of the lab can keep."""
    return text.replace("\x00", "")


def _number(name: str, value: Any) -> float | int | str:
    """As JSON has it: what is no finite number as text."""
    check_figure(name)
    if type(value) is not float and type(value) is not int:
        try:
            value = float(value)
        except (TypeError, ValueError):
            raise LabError(
                f"{name} is {value!r:.60}", "log numbers; text belongs to the parameters"
            ) from None
    return value if math.isfinite(value) else str(float(value))


def check_figure(name: str) -> str:
    """The name; ``LabError`` where a search could not say it."""
    if not FIGURE.fullmatch(check_name(name, LONGEST_FIGURE)):
        raise LabError(
            f"{name!r} names no figure", "a word without ( ) < > = ! , : and quotes, as train/loss"
        )
    return name


def check_step(step: Any) -> int:
    """The step as a number; ``LabError`` for what is none."""
    if not 0 <= int(step) < 2**62:
        raise LabError(f"{step} is no step", "an integer of at least 0")
    return int(step)


def flatten(params: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested parameters by their paths, ``optimizer.lr``; what JSON has no value for as text."""
    found: dict[str, Any] = {}
    for name, value in params.items():
        if isinstance(value, Mapping):
            found |= flatten(value, f"{prefix}{name}.")
        elif value is None or isinstance(value, bool | int | str):
            found[f"{prefix}{name}"] = _clean(value)[:2000] if isinstance(value, str) else value
        elif isinstance(value, float):
            found[f"{prefix}{name}"] = value if math.isfinite(value) else str(value)
        else:
            found[f"{prefix}{name}"] = _clean(str(value))[:2000]
    return found
