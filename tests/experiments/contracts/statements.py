"""The statements of a file, without the expressions inside of them."""

from __future__ import annotations

import ast

#: Where a statement has others: branches, handlers and cases too.
BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")


def statements(tree: ast.Module) -> list[ast.AST]:
    """Every statement of ``tree``, the outer ones first: a fifth of what ``ast.walk`` goes through."""
    found: list[ast.AST] = [tree]
    for node in found:  # grows meanwhile
        found += [inner for block in BLOCKS for inner in getattr(node, block, ())]
    return found
