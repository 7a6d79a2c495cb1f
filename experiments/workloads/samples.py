"""What the options say a sample is made of: documents packed into its sequence, images before its text."""

from __future__ import annotations

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions


def check_documents(sequence: int, options: WorkloadOptions) -> None:
    """Refuse documents that do not fill the sequence: all are as long as their mean."""
    if options.document and sequence % options.document:
        what = f"document {options.document} does not divide sequence {sequence}"
        raise BadInput(what, "options.document", "a divisor of the sequence, or 0")


def refuse_documents(name: str, what: str, options: WorkloadOptions) -> None:
    """Refuse documents of a model that ``name`` has no ``what`` for."""
    if options.document:
        raise BadInput(f"{name} has no {what}", "options.document", "0, or the option left out")


def refuse_images(name: str, options: WorkloadOptions) -> None:
    """Refuse a number of images of a model whose samples are not images and text."""
    if options.images != 1:
        raise BadInput(f"{name} has no images beside text", "options.images", "the option left out")
