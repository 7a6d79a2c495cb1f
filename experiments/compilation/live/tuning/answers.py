"""A child process that is asked in lines of JSON, with a time limit for each answer, and the bench that it
makes.
"""

from __future__ import annotations

import json
import select
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

#: A child has so long to start and to make a task's operands.
START_SECONDS = 120.0


class NoAnswer(Exception):
    """The child did not answer: ``error`` is the class of a trial's error, the message says what happened."""

    def __init__(self, error: str, what: str) -> None:
        self.error = error
        super().__init__(what)


class Child:
    """One child, started when first asked and again after it died. ``greeting`` is asked of every new one."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command, self._environment = list(command), dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None
        self._greeting: Mapping[str, Any] | None = None

    def greet(self, greeting: Mapping[str, Any], seconds: float) -> None:
        """Ask now, and of every child started later."""
        self._greeting = greeting
        if self._process is None:
            self._start(seconds)
        else:
            self._exchange(greeting, seconds)

    def ask(self, question: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Return the answer; ``NoAnswer`` after ``seconds`` or when the child died.

        Either way the next child is a new one.
        """
        if self._process is None:
            self._start(START_SECONDS)
        return self._exchange(question, seconds)

    def close(self) -> None:
        """End the child and wait for it, so that its CPU time is counted."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        if self._said is not None:
            self._said.close()
            self._said = None

    def _start(self, seconds: float) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the child)
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=self._environment,
            bufsize=0,
        )
        if self._greeting is not None:
            self._exchange(self._greeting, seconds)

    def _exchange(self, question: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(question).encode() + b"\n")
        except BrokenPipeError:
            raise self._report_death() from None
        if not select.select([process.stdout], [], [], seconds)[0]:
            self.close()
            raise NoAnswer("run time-out", f"no answer in {seconds:g} s")
        line = process.stdout.readline()
        if not line.endswith(b"\n"):
            raise self._report_death()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _report_death(self) -> NoAnswer:
        assert self._process is not None
        code = self._process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}{self._last_words()}"
        self.close()
        return NoAnswer("device", f"the schedule's process ended with {how}")

    def _last_words(self) -> str:
        """Return the last line that the child wrote to its standard error, after a colon."""
        assert self._said is not None
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").split("\n")
        return next((f": {line.strip():.200}" for line in reversed(lines) if line.strip()), "")


class TimedTasks:
    """A child that holds the operands of one task at a time and times schedules on them.

    Both benches have one.

    ``greeting`` says what a task is to the child: asked once when the task changes, and of every new child.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        greeting: Callable[[int], Mapping[str, Any] | str],
    ) -> None:
        self._child = Child(command, environment)
        self._greeting = greeting
        self._task: int | None = None

    def close(self) -> None:
        """End the child process that times."""
        self._child.close()

    def repeats(self, task: int, question: Mapping[str, Any], seconds: float) -> list[float]:
        """Return the seconds of one call, each time.

        ``NoAnswer`` says why there are none within ``seconds``.
        """
        if task != self._task:
            self._child.greet({"task": self._greeting(task)}, START_SECONDS)
            self._task = task
        answer = self._child.ask(question, seconds)
        if "wrong" in answer:
            raise NoAnswer("wrong answer", answer["wrong"])
        if "error" in answer:
            raise NoAnswer(answer["error"], answer["detail"])
        repeats: list[float] = answer["repeats"]
        return repeats
