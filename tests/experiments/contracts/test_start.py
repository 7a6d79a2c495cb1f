"""What a command loads before it knows what it is asked for: every trial of a worker begins with it."""

from __future__ import annotations

import subprocess
import sys

LARGE = ("torch", "scipy", "networkx", "ortools", "sympy", "pandas", "onnx", "egglog")


def test_the_command_line_and_all_policies_load_no_large_library() -> None:
    code = f"""
import sys
import experiments.__main__
from experiments.core import registry
from experiments.core.policy import FAMILIES
for family in FAMILIES:
    assert registry.family_policies(family)
print([name for name in {LARGE} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
