"""Every variant of a program compiled, checked and timed on this host; the policy chooses."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch

from experiments.compilation.interface import refuse
from experiments.compilation.interface.control import (
    Construct,
    ControlPolicy,
    ControlTrial,
    LevelChoices,
    Variant,
    violations,
)
from experiments.compilation.live.backends import dynamo
from experiments.compilation.live.backends.base import (
    CompilationFailed,
    Compiled,
    Inputs,
    Task,
    clock_compilation,
)
from experiments.compilation.live.control.program import (
    ObservedConstruct,
    in_form,
    kind_of,
    observe,
    program_of,
)
from experiments.compilation.live.timing import compare
from experiments.compilation.live.unfriendly import unfriendly
from experiments.compilation.live.verify import verify
from experiments.core.errors import BadInput, LabError
from experiments.core.progress import Progress

#: Seconds that a variant and eager are timed in turn.
TIMED = 0.3
#: Draws of inputs that look for sides of branches that were not taken yet.
DRAWS = 32
#: Levels at which Python decides between graphs.
BY_HOST = ("host", "ahead", "unroll", "stack")
#: Graphs of one function: the blocks of a model share their code, and each may be compiled for itself.
MOST_GRAPHS = 64
#: What compiling or running a variant may end in; each is recorded and the variant skipped.
FAILURES = (LabError, ArithmeticError, LookupError, RuntimeError, TimeoutError, TypeError, ValueError)


@dataclass(frozen=True)
class Carried:
    """A variant carried out.

    What it gave, the compiled call, where graphs ended, and processor seconds to compile.
    """

    trial: ControlTrial
    call: Callable[..., Any] | None = None
    breaks: tuple[dynamo.Break, ...] = ()
    cpu_seconds: float = 0.0


def build(policy: ControlPolicy, task: Task) -> Compiled:
    """Return the variant that the policy chooses. ``CompilationFailed`` where none could be carried out."""
    if task.training:
        raise BadInput("forms of control flow have no backward pass here", "knobs.training", "false")
    found, others = cover_branches(task)
    program = program_of(found)
    choices = policy.variants(program)
    refuse(violations(choices, program))
    carry = partial(_carry_out, policy=policy, task=task, found=found, others=others, limit=policy.limit)
    carried = list(_all(choices.variants, carry, task.progress))
    chosen = policy.choose([entry.trial for entry in carried])
    if chosen is None:
        raise CompilationFailed("no variant could be carried out: " + "; ".join(_errors(carried)))
    refuse([] if any(entry.trial is chosen for entry in carried) else ["what is chosen was not tried"])
    best = next(entry for entry in carried if entry.trial is chosen)
    # Each variant starts with Dynamo's cache empty, so all but the last are forgotten by now.
    # The chosen one is compiled again without a limit: it kept to it once, and a host may have become busy.
    kept = best if best is carried[-1] else carry(chosen.variant, limit=0.0)
    if kept.call is None:
        raise CompilationFailed(f"{chosen.variant} worked once: {kept.trial.error}")
    figures = {"ops": chosen.ops, "graphs": chosen.graphs, "graph_breaks": chosen.breaks}
    figures["rewrites"] = len(found)
    report = _report(program.constructs, found, choices, carried, best)
    return Compiled(kept.call, chosen.compile_seconds, best.cpu_seconds, figures, report)


def _all(
    variants: Sequence[Variant], carry: Callable[[Variant], Carried], progress: Progress
) -> Iterator[Carried]:
    for number, variant in enumerate(variants):
        progress(number / len(variants), str(variant))
        yield carry(variant)


def _errors(carried: Sequence[Carried]) -> list[str]:
    return [f"{entry.trial.variant}: {entry.trial.error}" for entry in carried]


def cover_branches(task: Task) -> tuple[list[ObservedConstruct], list[Inputs]]:
    """Return the constructs, and inputs for the sides of branches that the unfriendly inputs never take."""
    cases = [case for _, case in unfriendly(task.inputs, task.seed)]
    others: list[Inputs] = []
    found = observe(task.module, cases)
    for draw in range(1, DRAWS + 1):
        missing = _never_taken(found)
        if not missing:
            break
        case = unfriendly(task.inputs, task.seed + draw)[1][1]
        with_it = observe(task.module, [*cases, *others, case])
        if len(_never_taken(with_it)) < len(missing):
            found, others = with_it, [*others, case]
    return found, others


def _never_taken(found: Sequence[ObservedConstruct]) -> list[str]:
    return [f"{seen.path}: {side}" for seen in found for side, count in seen.sides.items() if not count]


def _carry_out(
    variant: Variant,
    policy: ControlPolicy,
    task: Task,
    found: list[ObservedConstruct],
    others: list[Inputs],
    limit: float,
) -> Carried:
    try:
        with time_limit(limit), torch.no_grad(), dynamo.limits(MOST_GRAPHS):
            return _measure(variant, policy, task, found, others)
    except FAILURES as error:
        line = " ".join(str(error).split()) or "no message"
        return Carried(ControlTrial(variant, error=f"{type(error).__name__}: {line:.300}"))


def _measure(
    variant: Variant, policy: ControlPolicy, task: Task, found: list[ObservedConstruct], others: list[Inputs]
) -> Carried:
    """Counted by ``explain``, compiled by its first call, compared with eager in float64, timed in turn with
    it.
    """
    module = in_form(task.module, found, variant, policy.small)
    graphs, breaks = dynamo.breaks(module, task.inputs)
    decided = () if breaks else _decided_by_host(found, variant)
    call = torch.compile(module, backend=policy.backend)
    with clock_compilation() as clock:
        call(*task.inputs)
        counts = dynamo.read_counts()
    trial = ControlTrial(variant, None, graphs=graphs, breaks=max(graphs - 1, len(decided)), ops=counts.calls)
    trial = replace(trial, compile_seconds=clock.wall)
    compiled = Compiled(call, clock.wall, clock.cpu)
    checks = [verify(replace(task, inputs=case), compiled, task.seed) for case in (task.inputs, *others)]
    wrong = next((check.counterexample for check in checks if not check.ok), "")
    if wrong:
        return Carried(replace(trial, error=f"wrong: {wrong}"), None, breaks or decided)
    timing = compare(_once(call, task), _once(task.module, task), task.device, task.seed, TIMED)
    ours = timing.ours
    trial = replace(
        trial,
        seconds=ours.median,
        lower=ours.lower,
        upper=ours.upper,
        bit_equal=all(check.bit_equal for check in checks),
    )
    return Carried(trial, call, breaks or decided, clock.cpu)


def _decided_by_host(found: Sequence[ObservedConstruct], variant: Variant) -> tuple[dynamo.Break, ...]:
    """Return where Python decides between graphs.

    Dynamo names no break where it leaves a whole function to Python.
    """
    rows = []
    for seen in found:
        level = variant.of(kind_of(seen.module))
        if level.form in BY_HOST:
            code = type(seen.module).forward.__code__
            where = dynamo.source_line(code.co_filename, code.co_firstlineno)
            rows.append(dynamo.Break(where, seen.path, f"{level}: Python decides what runs next"))
    return tuple(rows)


def _once(call: Callable[..., Any], task: Task) -> Callable[[], Any]:
    return lambda: call(*task.inputs)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """``TimeoutError`` when the block takes longer; 0 is no limit.

    Only the main thread can be interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise TimeoutError(f"more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _report(
    constructs: Sequence[Construct],
    found: Sequence[ObservedConstruct],
    choices: LevelChoices,
    carried: Sequence[Carried],
    best: Carried,
) -> dict[str, Any]:
    """Return the level of each construct, all trials, what was refused, and the sides that no compared input
    took.
    """
    levels = {level.kind: str(level) for level in best.trial.variant.levels}
    rows = [
        {"path": entry.path, "kind": entry.kind, "level": levels[entry.kind], **_shape(entry)}
        for entry in constructs
    ]
    sides = {seen.path: dict(seen.sides) for seen in found if seen.sides}
    return {
        "constructs": rows,
        "chosen": best.trial.to_json(),
        "breaks": [asdict(row) for row in best.breaks],
        "trials": [entry.trial.to_json() for entry in carried],
        "refused": dict(choices.refused),
        "sides_taken": sides,
        "sides_never_taken": _never_taken(found),
    }


def _shape(entry: Construct) -> dict[str, Any]:
    numbers = {
        name: getattr(entry, name)
        for name in ("trips", "conditional", "depth", "calls")
        if hasattr(entry, name)
    }
    return numbers | {"body_ops": [len(graph.computing) if graph else None for graph in entry.bodies]}
