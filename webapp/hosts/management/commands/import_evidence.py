"""``manage.py import_evidence [FILE...]``: puts evidence where pages show it; without a file, all that ships.

Files of ``experiments.validate`` stand on the Validation page, those of ``claims --run --out`` in the
catalog, those of ``suites --run --out`` in Tables.
"""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from experiments.core import claim_evidence, jsonio, suite_evidence
from experiments.core.errors import BadInput
from webapp.hosts import validating
from webapp.papers.shipped import import_verdicts
from webapp.papers.shipped_suites import import_suites

#: What stores a file by what it says of itself; one that says nothing is of devices.
FORMATS = {claim_evidence.FORMAT: import_verdicts, suite_evidence.FORMAT: import_suites}


class Command(BaseCommand):
    help = "Loads evidence of devices, claims and suites; what is already there is left alone."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("files", nargs="*", type=Path, help="all of docs/evidence where none is named")

    def handle(self, *args: Any, files: list[Path], **options: Any) -> None:
        for path in files or _list_shipped():
            self.stdout.write(f"{path.name}: {'imported' if self._import(path) else 'already there'}")

    def _import(self, path: Path) -> bool:
        try:
            content = path.read_bytes()
            evidence = jsonio.loads(content, path.name)
            if isinstance(evidence, dict) and evidence.get("format") in FORMATS:
                return FORMATS[evidence["format"]](evidence, path.name)
            return validating.keep_evidence(content, path.name)
        except (OSError, BadInput) as error:
            raise CommandError(str(error)) from None


def _list_shipped() -> list[Path]:
    """Evidence that pages show; what ``./lab harden`` found is for those who read files."""
    found = (settings.ROOT / "docs" / "evidence").glob("*.json")
    return sorted(path for path in found if not path.name.startswith("harden"))
