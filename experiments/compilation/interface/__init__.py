"""Records that compilation policies see, the questions they are asked, and the answers they return.

What makes an answer impossible (``violations``) is next to the answer's records.

``policy``        a library's recipe, a rewritten graph; ``graph`` and ``draft`` are what they are made of.
``launches``      how kernels are launched.
``control``       at which level loops, branches and recursion are carried out.
``tuning``        which schedules are tried.
``tiles``         with which tiles operators run; ``expressions`` and ``tile_graph`` are the operators.
``blocks``        which blocks of kernels run where.
``architecture``  what planners of kernels see of a device.
``buckets``       sizes that are padded to.

``experiment.QUESTIONS`` says for each question what carries an answer out.
"""

from experiments.compilation.interface.draft import Draft, IllTyped, Signature, Types
from experiments.compilation.interface.graph import (
    CONSTANT,
    INPUT,
    OP,
    OUTPUT,
    Argument,
    Graph,
    GraphNode,
    Ref,
    Symbol,
    TensorType,
    contiguous,
    map_refs,
)
from experiments.compilation.interface.policy import (
    EXACTNESS,
    Applied,
    Approximation,
    CompilationPolicy,
    ObservedRanges,
    Recipe,
    RecipePolicy,
    RewritePolicy,
    Rewritten,
    Workbench,
    refuse,
    violations,
)

__all__ = [
    "CONSTANT",
    "EXACTNESS",
    "INPUT",
    "OP",
    "OUTPUT",
    "Applied",
    "Approximation",
    "Argument",
    "CompilationPolicy",
    "Draft",
    "Graph",
    "GraphNode",
    "IllTyped",
    "ObservedRanges",
    "Recipe",
    "RecipePolicy",
    "Ref",
    "RewritePolicy",
    "Rewritten",
    "Signature",
    "Symbol",
    "TensorType",
    "Types",
    "Workbench",
    "contiguous",
    "map_refs",
    "refuse",
    "violations",
]
