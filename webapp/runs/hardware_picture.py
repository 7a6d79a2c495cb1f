"""The hardware of an experiment as a drawing: a node with its host, its devices and their links, and the
network to the other nodes. Lengths are pixels of a drawing that is ``WIDTH`` wide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from experiments.core.units import human
from experiments.hardware import Hardware, Node

WIDTH, MARGIN, TOP, LINE = 312, 12, 32, 16
HOST_WIDTH, DEVICE_WIDTH, INNER, PAD = 106, 118, 92, 8
#: Devices and nodes that are drawn one by one; of more the last place says how many follow.
MOST_DEVICES, MOST_NODES = 8, 8
GAP = 6


@dataclass(frozen=True)
class Box:
    """``kind`` is ``frame``, ``host``, ``device`` or ``node``; ``text`` stands in its middle."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    text: str = ""

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def baseline(self) -> float:
        return self.y + self.height / 2 + 4


@dataclass(frozen=True)
class Text:
    x: float
    y: float
    text: str
    kind: str = ""


@dataclass(frozen=True)
class Picture:
    """Boxes, links between them (x, y to x, y) and texts; ``words`` say the same to who does not see it."""

    words: str
    height: float
    boxes: tuple[Box, ...]
    links: tuple[tuple[float, float, float, float], ...]
    texts: tuple[Text, ...]

    @property
    def width(self) -> int:
        return WIDTH


def picture_of(hardware: Hardware) -> Picture:
    """The first kind of node in full; the others as boxes on their network."""
    node, count = hardware.node, hardware.node_count
    bottom = TOP + INNER + (2 * LINE if node.device_count > 1 else 0) + MARGIN
    nodes = tuple(_nodes(count, bottom + 26)) if count > 1 else ()
    title = node.name or "node"
    texts = [
        Text(MARGIN, 20, f"{title}, 1 of {count:,}" if count > 1 else f"one {title}"),
        *_node_texts(node),
    ]
    if nodes:
        texts.append(Text(MARGIN, bottom + 18, f"network, {rate(hardware.network.bandwidth)} a node"))
    frame = Box("frame", 0.5, 0.5, WIDTH - 1, bottom)
    host = Box("host", MARGIN, TOP, HOST_WIDTH, INNER)
    links: list[tuple[float, float, float, float]] = [
        (MARGIN + HOST_WIDTH, TOP + INNER / 2, _device_x(), TOP + INNER / 2)
    ]
    if nodes:
        links.append((WIDTH / 2, bottom, WIDTH / 2, bottom + 26))
    boxes = (frame, host, *_devices(node), *nodes)
    height = bottom + (54 if nodes else 1)
    return Picture(words_of(hardware), height, boxes, tuple(links), tuple(texts))


def words_of(hardware: Hardware) -> str:
    """``8 nodes dgx-h100 of 8 h100-80g each``; mixed clusters name every kind."""
    return " and ".join(_group_words(group.count, group.node) for group in hardware.groups)


def _group_words(count: int, node: Node) -> str:
    devices = f"{node.device_count} {node.device.name}"
    if count > 1:
        kind = f"{count:,} nodes {node.name}" if node.name else f"{count:,} nodes"
        return f"{kind} of {devices} each"
    if node.name:
        return f"one {node.name} of {devices}"
    return f"one {node.device.name}" if node.device_count == 1 else devices


def rate(bandwidth: float) -> str:
    return human(bandwidth, "bytes/s")


def _device_x() -> float:
    return WIDTH - MARGIN - DEVICE_WIDTH


def _node_texts(node: Node) -> Iterator[Text]:
    x = MARGIN + PAD
    yield Text(x, TOP + 20, "host", "name")
    for index, line in enumerate(_host_lines(node)):
        yield Text(x, TOP + 38 + LINE * index, line)
    yield Text((MARGIN + HOST_WIDTH + _device_x()) / 2, TOP + INNER / 2 - 8, "host link", "center")
    link = rate(node.device.host_link.bandwidth)
    yield Text((MARGIN + HOST_WIDTH + _device_x()) / 2, TOP + INNER / 2 + 18, link, "center")
    yield from _one_device(node) if node.device_count == 1 else _many_devices(node)


def _host_lines(node: Node) -> Iterator[str]:
    yield f"{human(node.host.memory_bytes, 'bytes')} memory"
    yield f"{human(node.storage.capacity_bytes, 'bytes')} storage"
    yield (
        f"{human(node.remote.capacity_bytes, 'bytes')} beyond" if node.remote else f"{node.host.cores} cores"
    )


def _device_lines(node: Node) -> list[str]:
    device = node.device
    peak = human(device.peak("bfloat16"), "FLOP/s")
    return [human(device.memory_bytes, "bytes"), rate(device.memory_bandwidth), f"{peak} bf16"]


def _one_device(node: Node) -> Iterator[Text]:
    yield Text(_device_x() + PAD, TOP + 20, node.device.name, "name")
    for index, line in enumerate(_device_lines(node)):
        yield Text(_device_x() + PAD, TOP + 38 + LINE * index, line)


def _many_devices(node: Node) -> Iterator[Text]:
    y = TOP + INNER + LINE + 2
    each = ", ".join(_device_lines(node))
    yield Text(WIDTH - MARGIN, y, f"{node.device_count} {node.device.name}, {each}", "end")
    yield Text(WIDTH - MARGIN, y + LINE, f"{rate(node.link.bandwidth)} between devices", "end")


def _devices(node: Node) -> Iterator[Box]:
    """One large box, or two columns of small ones."""
    x, count = _device_x(), node.device_count
    if count == 1:
        yield Box("device", x, TOP, DEVICE_WIDTH, INNER)
        return
    shown = min(count, MOST_DEVICES)
    width, rows = (DEVICE_WIDTH - GAP) / 2, -(-shown // 2)
    height = (INNER - GAP * (rows - 1)) / rows
    for index in range(shown):
        left, top = x + (width + GAP) * (index % 2), TOP + (height + GAP) * (index // 2)
        yield Box("device", left, top, width, height, _following(index, shown, count))


def _nodes(count: int, y: float) -> Iterator[Box]:
    shown = min(count, MOST_NODES)
    width = (WIDTH - GAP * (shown - 1)) / shown
    for index in range(shown):
        text = _following(index, shown, count) or str(index + 1)
        yield Box("node", (width + GAP) * index, y, width, 26, text)


def _following(index: int, shown: int, count: int) -> str:
    """In the last place: how many are not drawn by themselves."""
    return f"+{count - shown + 1:,}" if count > shown and index == shown - 1 else ""
