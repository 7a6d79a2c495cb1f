"""From the calls of a trace to the ops of one step: which calls are ops, their times, phases, shapes and
modules.

A call is an *op* when it is the outermost one that does work of its own: autograd's wrappers, annotations and
torch's composite operators (``aten::linear`` is a transposition and a product) are looked into, kernels are
not.

An op takes its own inclusive time, plus what the wrappers around it spent since the op before it; so the
times of a thread's ops add up to the profiler's total of self times. Device events replace these:
``kineto_kernels``.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from experiments.core.errors import BadInput
from experiments.readers.kineto_events import MODULE, Call, Trace, nest
from experiments.readers.kineto_shapes import Argument, arguments

BACKWARD = "autograd::engine::evaluate_function"
ACCUMULATE = "torch::autograd::AccumulateGrad"
STEP = re.compile(r"ProfilerStep#\d+$")
OPTIMIZER = re.compile(r"Optimizer\.(step|zero_grad)#")
OPTIMIZER_STEP = re.compile(r"Optimizer\.step#")

_COMPOSITE = """
linear matmul einsum tensordot inner conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
convolution _convolution batch_norm _batch_norm_impl_index layer_norm group_norm instance_norm
cross_entropy_loss nll_loss_nd nll_loss nll_loss2d log_softmax softmax embedding_bag
scaled_dot_product_attention _scaled_dot_product_attention_math multi_head_attention_forward max_pool1d
max_pool2d adaptive_avg_pool1d adaptive_avg_pool2d reshape flatten contiguous to type_as expand_as reshape_as
view_as split chunk tensor_split unflatten dropout feature_dropout gru lstm rnn_tanh square pad
upsample_bilinear2d where item ones zeros binary_cross_entropy_with_logits mse_loss_nd smooth_l1_loss_nd
embedding_backward one_hot hstack vstack
"""
_VIEWS = """
view _unsafe_view t transpose permute expand as_strided select slice narrow split_with_sizes unsqueeze squeeze
detach alias diagonal unbind movedim swapaxes real imag lift_fresh _reshape_alias resolve_conj resolve_neg
unfold view_as_real view_as_complex chunk split
"""
#: Operators that are written in terms of others; the others are the ops.
COMPOSITE = frozenset(f"aten::{name}" for name in _COMPOSITE.split())
VIEWS = frozenset(f"aten::{name}" for name in _VIEWS.split()) | {"detach"}
RANDOM = ("dropout", "rand", "normal_", "uniform_", "bernoulli", "multinomial")


@dataclass(eq=False)
class Op:
    """One op while the step is built.

    ``sequence`` is autograd's number (-1: none); ``node`` the wrapper around a backward op; ``end`` the end
    of the call on the host.
    """

    name: str
    call: Call
    phase: str
    node: Call | None
    seconds: float
    arguments: tuple[Argument, ...]
    module: str = ""

    @property
    def start(self) -> float:
        return self.call.start

    @property
    def end(self) -> float:
        return self.call.end

    @property
    def sequence(self) -> int:
        """Autograd's number: of the forward op itself, or of the one whose backward this is."""
        value = (self.node or self.call).args.get("Sequence number", -1)
        return value if isinstance(value, int) else -1

    @property
    def sums_fan_in(self) -> bool:
        """Whether autograd adds the gradients of a tensor that was used twice.

        It does so next to, not inside, the node's own call.
        """
        return self.name == "aten::add_" and self.node is not None and self.call in self.node.children

    @property
    def view(self) -> bool:
        return self.name in VIEWS

    @property
    def random(self) -> bool:
        return any(word in self.name for word in RANDOM) and "backward" not in self.name


@dataclass(frozen=True)
class Window:
    """The part of a trace that is one step, from ``start`` to ``end``; ``steps`` how many the trace has."""

    start: float
    end: float
    steps: int


@dataclass(frozen=True)
class Reckoned:
    """The ops of a step in order.

    ``between`` seconds were spent in wrappers; ``accumulated`` are the gradients that autograd gave to
    parameters, in backward order; ``optimizer`` is the class in the optimizer's annotation.
    """

    ops: tuple[Op, ...]
    between: float
    accumulated: tuple[Argument, ...]
    optimizer: str
    on_device: bool = False
    facts: Mapping[str, float] = field(default_factory=dict)


def walk(calls: Sequence[Call]) -> Iterator[Call]:
    todo = list(reversed(calls))
    while todo:
        call = todo.pop()
        yield call
        todo.extend(reversed(call.children))


def is_op(call: Call) -> bool:
    """Whether a call does work of its own.

    Composite operators only where nothing was recorded inside them.
    """
    if call.category != "cpu_op" or call.name.startswith((BACKWARD, "torch::autograd::", "[pytorch|")):
        return False
    if call.name in COMPOSITE:
        return not any(child.category == "cpu_op" for child in call.children)
    return "::" in call.name or not call.children  # autograd nodes and annotations have plain names


def window(trace: Trace) -> Window:
    """The step of a trace: its last ``ProfilerStep``, if there is one.

    Else what lies between the ends of the last two optimizer steps; else everything.
    """
    everything = [call for roots in trace.roots.values() for call in walk(roots)]
    if not any(call.category == "cpu_op" for call in everything):
        raise BadInput("no operators", "the trace", "a trace with activity CPU")
    start, end = min(call.start for call in everything), max(call.end for call in everything)
    steps = sorted((c for c in everything if STEP.match(c.name)), key=lambda call: call.start)
    steps = [step for step in steps if any(call.category == "cpu_op" for call in walk(step.children))]
    if steps:
        return Window(steps[-1].start, steps[-1].end, len(steps))
    updates = sorted(call.end for call in everything if OPTIMIZER_STEP.match(call.name))
    if len(updates) > 1 and not _ops_before(everything, updates[-1]):
        return Window(updates[-2], updates[-1], len(updates))
    return Window(start, end, 1)


def _ops_before(everything: Sequence[Call], last: float) -> bool:
    """Whether the trace goes on after the ``last`` optimizer step with a step that has none."""
    return any(call.start >= last and call.name.startswith(BACKWARD) for call in everything)


def reckon(trace: Trace, part: Window) -> Reckoned:
    """The ops of ``part``, timed and labeled."""
    found = _Collector(part)
    for thread in sorted(trace.roots):
        found.thread(trace.roots[thread])
    ops = sorted(found.ops, key=lambda op: op.start)
    if not ops:
        raise BadInput("no operators in the last step", "the trace", "a trace with activity CPU")
    _after_backward_comes_the_update(ops)
    _name_modules(ops, trace.modules)
    return Reckoned(tuple(ops), found.between, tuple(found.accumulated), found.optimizer)


class _Collector:
    """Walks the calls of each thread in order of time; what wrappers spend is carried to the next op."""

    def __init__(self, part: Window) -> None:
        self.part = part
        self.ops: list[Op] = []
        self.between = 0.0
        self.accumulated: list[Argument] = []
        self.optimizer = ""
        self._pending = 0.0
        self._last: Op | None = None

    def thread(self, roots: Sequence[Call]) -> None:
        self._last = None
        for root in roots:
            self._visit(root, "forward", None)
        if self._last is not None:
            self._last.seconds += self._pending
        self._pending = 0.0

    def _visit(self, call: Call, phase: str, node: Call | None) -> None:
        if call.end <= self.part.start or call.start >= self.part.end:
            return
        phase, node = self._label(call, phase, node)
        if is_op(call):
            op = Op(call.name, call, phase, node, call.end - call.start, arguments(call.args))
            op.seconds += self._pending
            self._pending, self._last = 0.0, op
            self.ops.append(op)
            return
        cursor = max(call.start, self.part.start)
        for child in call.children:
            self._spend(child.start - cursor)
            self._visit(child, phase, node)
            cursor = max(cursor, child.end)
        self._spend(min(call.end, self.part.end) - cursor)

    def _spend(self, seconds: float) -> None:
        if seconds > 0:
            self._pending += seconds
            self.between += seconds

    def _label(self, call: Call, phase: str, node: Call | None) -> tuple[str, Call | None]:
        if call.name.startswith(BACKWARD):
            return "backward", call
        if OPTIMIZER.match(call.name):
            if OPTIMIZER_STEP.match(call.name):
                self.optimizer = call.name.partition("#")[2].partition(".")[0]
            return "optimizer", None
        if call.name == ACCUMULATE:
            self.accumulated.extend(argument for argument in arguments(call.args)[:1])
        return phase, node


def _after_backward_comes_the_update(ops: Sequence[Op]) -> None:
    """What follows the last backward op belongs to the update: clipping, say, or an optimizer without
    annotation.
    """
    last = max((index for index, op in enumerate(ops) if op.phase == "backward"), default=len(ops))
    for op in ops[last + 1 :]:
        op.phase = "optimizer"


def _name_modules(ops: Sequence[Op], modules: Sequence[Call]) -> None:
    """Module paths from the Python calls of modules (``with_stack``); a backward op belongs to its forward
    op's.
    """
    spans = _paths(modules)
    by_sequence: dict[int, str] = {}
    for op in ops:
        if op.phase == "forward":
            op.module = spans(op.call)
            if op.sequence >= 0 and op.module:
                by_sequence[op.sequence] = op.module
    for op in ops:
        if op.phase == "backward":
            op.module = by_sequence.get(op.sequence, "")


def _paths(modules: Sequence[Call]) -> Callable[[Call], str]:
    """A function from a call to the path of the innermost module that was running."""
    tops = nest(modules)

    def path(call: Call) -> str:
        names = []
        level = tops.get(call.thread, [])
        while level:
            index = bisect.bisect_right(level, call.start, key=lambda module: module.start) - 1
            if index < 0 or level[index].end < call.end:
                break
            names.append(level[index].name.removeprefix(MODULE))
            level = level[index].children
        return ".".join(names)

    return path
