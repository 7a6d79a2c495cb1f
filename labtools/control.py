"""`./lab status` and `./lab stop`: look at the lab that runs in this checkout, and end it from outside."""

from __future__ import annotations

import os
import signal
import time

from labtools import processes, programs, record
from labtools.layout import Layout
from labtools.problems import Problem

STOP_SECONDS = 60
NOT_RUNNING = 3  # the exit code that service managers use for it


def status(layout: Layout) -> int:
    running = record.read_record(layout)
    if not record.is_held(layout):
        print("No lab runs in this checkout.")
        for child in running.leftovers() if running else []:
            print(f"  left over from a killed one: {child.name} (process {child.pid}); ./lab stop ends it")
        return NOT_RUNNING
    if running is None:
        print("A lab is just starting.")
        return 0
    if not running.port:
        print(f"A worker for a lab elsewhere; ./lab worker is process {running.pid}")
        return _tell_children(layout, running)
    answer = "answers" if programs.answers(f"{running.url}/healthz") else "does not answer (yet)"
    print(f"{running.url} {answer}; lab is process {running.pid}")
    return _tell_children(layout, running)


def _tell_children(layout: Layout, running: record.Record) -> int:
    alive = {child.pid for child in running.leftovers()}
    for child in running.children:
        print(f"  {child.name:<10} process {child.pid:<8} {'runs' if child.pid in alive else 'has ended'}")
    for trouble in running.troubles.values():
        print(f"  {trouble}")
    print(f"  logs in {layout.logs}" + (f", login in {layout.var}" if running.port else ""))
    return 0


def stop(layout: Layout) -> int:
    running = record.read_record(layout)
    if not record.is_held(layout):
        if running is None:
            print("No lab runs in this checkout.")
            return 0
        with record.claim(layout):
            return 0
    if running is None:
        raise Problem("a lab is just starting and cannot be reached yet", "try again in a moment")
    os.kill(running.pid, signal.SIGTERM)
    if not _is_released(layout):
        _kill(layout, running)
    print("Stopped; the data is kept in", layout.var)
    return 0


def _is_released(layout: Layout) -> bool:
    deadline = time.monotonic() + STOP_SECONDS
    while record.is_held(layout):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _kill(layout: Layout, running: record.Record) -> None:
    print(f"The lab did not stop within {STOP_SECONDS} s; killing it")
    lab = processes.find(running.pid)
    if lab is not None:
        processes.end(lab, seconds=0)
    record.end_leftovers(layout)
