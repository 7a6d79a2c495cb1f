"""Lists of operators: each kind as spelled, and what is refused at its line."""

from pathlib import Path
from typing import Any

import pytest

from experiments.compilation.simulator.listed_operators import expression
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import open_file
from experiments.summaries import summary
from experiments.workloads.operator_list import OperatorList

LIST = """# two products, a strided convolution, the rest
M0 matmul m=65536 n=1024 k=2
B0 matmul m=8 n=9 k=10 batch=2x3 dtype=float16
C1 conv x=128x128x57x57 filters=128 kernel=3x3 stride=2x2
D0 conv x=1x84x83x83 filters=84 kernel=5x5 padding=2x2 groups=84

P0 pool x=1x42x9x9 kernel=3x3 stride=2x2 padding=1x1
E0 elementwise shape=7x5 operands=2
R0 reduce shape=64x32x16 over=0x2
S0 softmax shape=4x1000 over=1
"""


def read(path: Path, text: str, **options: Any) -> OperatorList:
    file = path / "list.txt"
    file.write_text(text)
    found: OperatorList = open_file(file, "auto", WorkloadOptions(**options)).reading.value
    return found


def test_every_kind_becomes_its_loops(tmp_path: Path) -> None:
    listed = read(tmp_path, LIST)
    found = {operator.name: expression(operator) for operator in listed.operators}
    assert {name: made.extents for name, made in found.items()} == {
        "M0": (65536, 1024, 2),
        "B0": (2, 3, 8, 9, 10),
        "C1": (128, 128, 28, 28, 128, 3, 3),
        "D0": (1, 84, 83, 83, 5, 5),
        "P0": (1, 42, 5, 5, 3, 3),
        "E0": (7, 5),
        "R0": (32, 64, 16),
        "S0": (4, 1000),
    }
    assert found["B0"].dtype == "float16"
    assert len(found["E0"].inputs) == 2
    assert found["S0"].rowwise
    assert summary(listed)["cards"][0]["value"] == 8


def test_the_type_of_a_spec_is_that_of_operators_that_say_none(tmp_path: Path) -> None:
    types = [operator.dtype for operator in read(tmp_path, LIST, dtype="bfloat16").operators[:2]]
    assert types == ["bfloat16", "float16"]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("M1 matmul m=5 n=6", "matmul without k"),
        ("M1 matmul m=5 n=6 k=0", "k=0"),
        ("M1 matmul m=5x2 n=6 k=1", "m='5x2'"),
        ("M1 matmul m=5 m=6 n=6 k=1", "m=6"),
        ("M1 gemm m=5", "names no kind"),
        ("M0 matmul m=5 n=6 k=1", "appears twice"),
        ("R1 reduce shape=4x4 over=2", "over=2"),
        ("C2 conv x=1x3x2x2 filters=4 kernel=3x3", "a window of 3 over 2"),
        ("C2 conv x=1x3x9x9 filters=4 kernel=3", "kernel has 1 numbers"),
        ("C2 conv x=1x3x9x9 filters=4 kernel=3x3 groups=2", "groups=2"),
        ("C2 conv x=1x3x9x9 filters=4 kernel=3x3 stride=0x1", "stride=0x1"),
        ("E1 elementwise shape=2147483647x2147483647", "more than"),
        ("M1 matmul m=5 n=6 k=1 dtype=float99", "dtype=float99"),
    ],
)
def test_a_line_that_cannot_be_is_refused_with_its_number(tmp_path: Path, line: str, complaint: str) -> None:
    with pytest.raises(BadInput, match=r"list\.txt: line 3") as refused:
        read(tmp_path, f"# list\nM0 matmul m=1 n=1 k=1\n{line}\n")
    assert complaint in str(refused.value)
    assert "expected" in str(refused.value)


TIMES = "OP\tTF\tTVM\tOP\tTF\tTVM\nM0\t1.5\t0\tX9\t7\t8\nE0\t2\tN/A\t\t\t\n"


def timed(path: Path, table: str) -> OperatorList:
    (path / "times.dat").write_text(table)
    return read(path, LIST, extra=str(path / "times.dat"))


def test_times_of_other_systems_come_in_a_table_beside_the_list(tmp_path: Path) -> None:
    # X9 is no operator of the list, TVM was not measured on E0.
    assert timed(tmp_path, TIMES).recorded == {"TF": {"M0": 1.5e-3, "E0": 2e-3}, "TVM": {}}
    assert timed(tmp_path, "name ours\nM0 3\n").recorded == {"ours": {"M0": 3e-3}}


def test_lines_above_the_table_say_where_its_times_come_from(tmp_path: Path) -> None:
    table = "# of a paper\n# and its license\nOP TF\nM0 2\nE0 fast\n"
    with pytest.raises(BadInput, match=r"times\.dat: line 5: TF: 'fast'"):
        timed(tmp_path, table)
    assert timed(tmp_path, table.replace("fast", "3")).recorded == {"TF": {"M0": 2e-3, "E0": 3e-3}}


@pytest.mark.parametrize(
    ("table", "place", "complaint", "expected"),
    [
        ("", "times.dat: line 1", "''", "a column for the operator"),
        ("OP\n", "times.dat: line 1", "'OP'", "one for each system"),
        ("OP TF TF\n", "times.dat: line 1", "OP TF TF", "once"),
        (
            "OP TF OP TVM\nM0 1 E0 2\n",
            "times.dat: line 1",
            "other columns",
            "the columns of the first: OP, TF",
        ),
        ("OP TF\nM0 1\nE0 fast\n", "times.dat: line 3: TF", "'fast'", "milliseconds over 0"),
        ("OP TF\nM0 -1\n", "times.dat: line 2: TF", "'-1'", "milliseconds over 0"),
        ("OP TF\nM0 inf\n", "times.dat: line 2: TF", "'inf'", "milliseconds over 0"),
        ("OP TF TVM\nM0 1\n", "times.dat: line 2", "1 times of 'M0'", "2, as the first line names"),
        ("OP TF\nM0 1\nM0 2\n", "times.dat: line 3", "appears twice", "each once"),
        ("OP TF\nX9 1\n", "times.dat", "names none of the operators", "such as M0"),
    ],
)
def test_a_table_that_cannot_be_is_refused_at_its_line(
    tmp_path: Path, table: str, place: str, complaint: str, expected: str
) -> None:
    with pytest.raises(BadInput) as refused:
        timed(tmp_path, table)
    for words in (place, complaint, expected):
        assert words in str(refused.value)


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"gone\.dat"):
        read(tmp_path, LIST, extra=str(tmp_path / "gone.dat"))
