"""What a command loads before it knows what it is asked for: every trial of a worker begins with it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from experiments.__main__ import MODULES, main

LARGE = ("torch", "scipy", "networkx", "ortools", "sympy", "pandas", "onnx", "egglog")


def test_the_command_line_and_all_policies_load_no_large_library() -> None:
    code = f"""
import sys
from experiments.__main__ import parser
parser()
from experiments.core import registry
from experiments.core.policy import FAMILIES
for family in FAMILIES:
    assert registry.family_policies(family)
print([name for name in {LARGE} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_verb_loads_its_own_command_alone() -> None:
    """A trial that plans nothing takes half a second of the processor, most of it to start."""
    code = """
import sys
from experiments.__main__ import parser
parser("run")
loaded = ("experiments.advisor", "experiments.parallel", "experiments.commands.inspect")
print([name for name in loaded if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("verb", sorted(MODULES))
def test_each_verb_is_found_in_its_module(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([verb, "--help"])
    assert f"experiments {verb} " in capsys.readouterr().out
