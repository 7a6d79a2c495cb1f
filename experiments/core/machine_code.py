"""Loops in machine code (numba), for searches that walk a workload hundreds of times."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, TypeVar, cast

Loop = TypeVar("Loop", bound=Callable[..., Any])


def compile_loop(loop: Loop, *helpers: Callable[..., Any]) -> Loop:
    """``loop`` compiled for the types that it is called with, which takes some seconds.

    It indexes arrays of numpy, counts and compares, and of our functions calls only ``helpers``. As it is
    written it does the same, slowly: for work that takes less than the compiler, and on hosts without one.
    """
    return cast(Loop, _compile(loop, *helpers))


@cache
def _compile(loop: Callable[..., Any], *helpers: Callable[..., Any]) -> Any:
    """Functions of the same code, that find each other compiled where the originals find each other."""
    try:
        import numba  # here, because loading it takes longer than most commands
    except ImportError:  # not there, or not for the numpy that is
        return loop
    njit: Any = numba.njit  # whose types know no wrappers: only the loop is called from Python
    known = dict(loop.__globals__)
    for helper in helpers:
        inner = FunctionType(helper.__code__, known, helper.__name__)
        known[helper.__name__] = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)(inner)
    return njit(FunctionType(loop.__code__, known, loop.__name__))
