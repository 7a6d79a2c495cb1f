"""Devices, links, nodes and clusters from spec sheets with sources; roofline and collective costs on them."""

from experiments.hardware.library import names
from experiments.hardware.listing import accelerators, catalog
from experiments.hardware.parts import Device, Hardware, Host, Link, Node, NodeGroup, Storage, Switch
from experiments.hardware.specs import OVERRIDES, resolve

__all__ = [
    "OVERRIDES",
    "Device",
    "Hardware",
    "Host",
    "Link",
    "Node",
    "NodeGroup",
    "Storage",
    "Switch",
    "accelerators",
    "catalog",
    "names",
    "resolve",
]
