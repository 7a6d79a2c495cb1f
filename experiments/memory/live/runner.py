"""Runs the captured step op by op with a plan's moves in between.

The nodes keep the graph's order, or have the plan's; between them stand the moves, and after each the values
that nothing needs any more are let go, reruns counted. Device addresses are torch's own, whatever pool the
plan names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, fx

from experiments.memory.interface.lineage import Lineage
from experiments.memory.interface.plan import MemoryPlan
from experiments.memory.interface.transform import reordered
from experiments.memory.live.elsewhere import writing_elsewhere
from experiments.memory.live.host_execution import HostExecution
from experiments.memory.live.moves import Moves, generator_state
from experiments.memory.live.schedule import in_order, refuse, schedule
from experiments.memory.live.values import Values, call, parts
from experiments.profiling.capture import Traced


class StepRunner:
    """Runs steps of ``traced`` under ``plan`` on the inputs given, which it updates in place.

    ``ledger.peak`` is the most bytes that were on the device at once over all steps run, inputs included.
    Tensors that the plan places off the device leave it when the first step begins, or at ``begin``, and are
    back after ``close`` (or the end of a ``with`` block); so are files.
    """

    def __init__(self, traced: Traced, plan: MemoryPlan) -> None:
        refuse(plan)
        if plan.out_of_place:
            traced = writing_elsewhere(traced, plan.out_of_place)
        if plan.order:
            traced = replace(traced, step=reordered(traced.step, plan.order))
        self.traced, self.lineage = traced, Lineage(traced.step)
        self.values = Values(traced)
        self.copies, self.ledger = self.values.copies, self.values.ledger
        self.moves = Moves(self.values, self.lineage)
        self.host = HostExecution(self.values, self.lineage)
        names = traced.step.ops.name
        self.nodes: list[fx.Node] = (
            in_order(traced, names) if plan.order else list(traced.graph_module.graph.nodes)
        )
        self.op_of = {name: op for op, name in enumerate(names)}
        self.schedule = schedule(traced, plan, self.nodes)
        self.begun = False

    def __enter__(self) -> StepRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    @torch.no_grad()
    def begin(self, inputs: Sequence[Tensor]) -> None:
        """Tensors leave for the places that they have off the device."""
        if not self.begun:
            self.begun = True
            self.host.settle_in(self.schedule.places, inputs)

    @torch.no_grad()
    def close(self) -> None:
        """Tensors are back on the device, files are gone."""
        self.values.clear()
        if self.begun:
            self.host.bring_home()

    @torch.no_grad()
    def __call__(self, inputs: Sequence[Tensor]) -> Tensor:
        """One step; returns the loss (or the output)."""
        self.begin(inputs)
        self.host.find_homes(inputs)
        rest = iter(inputs)
        out: Any = None
        for node in self.nodes:
            if node.op == "placeholder":
                self.values.hold(self.values.scope, node, next(rest))
            elif node.op == "get_attr":
                self.values.hold(self.values.scope, node, getattr(self.traced.graph_module, str(node.target)))
            elif node.op == "output":
                self._before(len(self.op_of))
                out = fx.node.map_arg(node.args[0], self.host.value_on_device)
            else:
                self._run(node)
        self.values.clear()
        self.copies.finish()
        loss: Tensor = next(parts(out))
        return loss

    def _run(self, node: fx.Node) -> None:
        op = self.op_of.get(node.name)
        if op is None:
            self._pick(node)
        else:
            self._before(op)
            self.moves.await_touched(op)
            if op in self.schedule.on_host:
                self.host.run_on_host(node, op)
            else:
                self._run_on_device(node, op)
            self.moves.leave(op)
        self.values.let_die(self.schedule.after.get(node.name, ()))

    def _pick(self, node: fx.Node) -> None:
        """Take one output of an op that has several, where it was made."""
        if any(source.name in self.values.on_host for source in node.all_input_nodes):
            self.host.pick(node)
        else:
            self.values.hold(self.values.scope, node, call(node, self.host.value_on_device))

    def _run_on_device(self, node: fx.Node, op: int) -> None:
        for tensor in self.copies.kept.intersection(self.lineage.writes[op]):
            self.copies.forget(tensor)
        if op in self.schedule.again and self.traced.step.ops.random[op]:
            self.moves.generators[op] = generator_state(self.traced.device)
        self.copies.make_room(self.moves.made_bytes[op])
        self.values.hold(self.values.scope, node, call(node, self.host.value_on_device))
        self.copies.keep_pace()

    def _before(self, op: int) -> None:
        for move in self.schedule.before.get(op, ()):
            self.moves.carry[move.action](move)
        self.values.let_die(self.schedule.after_moves.get(op, ()))
