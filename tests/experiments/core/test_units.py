import pytest

from experiments.core.units import human


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (2**30, "bytes", "1 GiB"),
        (1536, "bytes", "1.5 KiB"),
        (12, "bytes", "12 B"),
        (0.0021, "s", "2.1 ms"),
        (0, "s", "0 s"),
        (1.352, "ratio", "1.35×"),
        (5400, "s", "1.5 h"),
        (3.12e14, "FLOP/s", "312 TFLOP/s"),
        (0.4567, "fraction", "45.7 %"),
        (69351, "jobs", "69,351 jobs"),
        (1, "requests", "1 request"),
        (1171, "count", "1,171"),
        (-2.5e-5, "s", "-25 µs"),
    ],
)
def test_figures_read_as_people_write_them(value: float, unit: str, shown: str) -> None:
    assert human(value, unit) == shown
