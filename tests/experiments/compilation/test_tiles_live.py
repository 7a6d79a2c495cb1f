"""Constructed tiles as Triton blocks: rounded to what a GPU launches, right under the interpreter,
unsupported without a GPU.
"""

import pytest
import torch
from torch import Tensor, nn

pytestmark = pytest.mark.torch
pytest.importorskip("triton", reason="Triton is not installed; CUDA builds of torch bring it")

from experiments.compilation.interface.architecture import Architecture  # noqa: E402
from experiments.compilation.interface.tile_graph import independent  # noqa: E402
from experiments.compilation.live.backends import compile_task  # noqa: E402
from experiments.compilation.live.backends.base import Task  # noqa: E402
from experiments.compilation.live.launch_blocks import launch_blocks  # noqa: E402
from experiments.compilation.live.tiles import recipe_of, sheet_of, tile_recipe  # noqa: E402
from experiments.compilation.live.verify import verify  # noqa: E402
from experiments.compilation.planning.tiles import operators  # noqa: E402
from experiments.compilation.policies.roller import Roller  # noqa: E402
from experiments.core.errors import Infeasible  # noqa: E402
from experiments.core.progress import silent  # noqa: E402
from experiments.hardware.specs import resolve  # noqa: E402

V100 = Architecture(resolve("v100").device)


class Layers(nn.Module):
    """A layer with a bias, one without over three axes, and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(50, 72), nn.Linear(72, 33, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(torch.relu(self.first(x)))
        product: Tensor = y[0] @ y[1].t()
        return product


def task() -> Task:
    torch.manual_seed(0)
    return Task(Layers().eval(), (torch.randn(2, 40, 50),), "cpu")


def test_blocks_are_powers_of_two_of_at_least_sixteen() -> None:
    made = [
        operators.matmul(1024, 1024, 1024, name="square"),
        operators.linear((1, 3), 4096, 10, name="thin"),
    ]
    square, thin = Roller().tiles(independent(made), V100, silent).kernels
    assert square.tile == (128, 64)
    assert launch_blocks(square).arguments() == (128, 64, 16, 8)
    assert launch_blocks(thin).arguments() == (16, 16, 16, 1)


def test_products_of_a_graph_are_right_by_the_blocks_of_their_tiles() -> None:
    whole = task()
    recipe = tile_recipe(Roller(), whole.graph, V100)
    assert sorted(recipe.options["kernels"].values()) == ["tiled_linear", "tiled_linear", "tiled_matmul"]
    assert set(recipe.options["blocks"]) == set(recipe.options["kernels"])
    assert all(seconds > 0 for seconds in recipe.options["predicted_seconds"].values())
    made = compile_task(recipe.backend, recipe.options, whole)
    assert made.untimed
    assert verify(whole, made, 0).ok


def test_without_a_gpu_tiles_are_not_run() -> None:
    with pytest.raises(Infeasible, match="unsupported here"):
        recipe_of(Roller(), task())


@pytest.mark.parametrize(
    ("name", "gigabytes", "sheet"),
    [
        ("NVIDIA H200", 139, "h200-141g"),
        ("Tesla V100-SXM2-32GB", 32, "v100-32g"),
        ("NVIDIA A100-SXM4-40GB", 40, "a100-40g"),
        ("Tesla T4", 15, "t4-16g"),
        ("NVIDIA GeForce RTX 9999", 24, None),
    ],
)
def test_a_gpu_is_known_by_its_name_and_memory(name: str, gigabytes: int, sheet: str | None) -> None:
    found = sheet_of(name, gigabytes << 30)
    assert (found.name if found else None) == sheet
