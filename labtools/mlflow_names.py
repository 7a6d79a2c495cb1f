"""Names of the lab as MLflow may have them, which are names of files, and back.

MLflow takes letters, digits, `_ - . /` and spaces. What else a name has stands as its code, `_x40_` for an @,
and so does a `_` before an `x`, so that every name is read back as it was.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

CODE = re.compile(r"_x([0-9a-f]{1,6})_")
#: The end of a name that was cut; the whole one is in a tag by this digest.
CUT = re.compile(r"_x([0-9a-f]{12})_$")
WHOLE = "lab.name."
#: Characters of a name, and bytes of a part of it, which a file system takes with what is put before it.
LONGEST, LARGEST_PART, KEPT_OF_CUT = 220, 220, 180


def escape(name: str, parts: bool = True) -> str:
    """``name`` for MLflow; a slash stays where the name has ``parts`` that can be folders."""
    slash = "/" if parts and _is_path(name) else ""
    shown = re.sub(rf"[^\w.\- {slash}]|_(?=x)", lambda found: f"_x{ord(found[0]):x}_", name)
    if shown.startswith("."):
        shown = f"_x2e_{shown[1:]}"
    is_long = len(shown) > LONGEST or any(len(p.encode()) > LARGEST_PART for p in shown.split("/"))
    return _cut(name, shown) if is_long else shown


def _is_path(name: str) -> bool:
    return posixpath.normpath(name) == name and not name.startswith(("/", "."))


def _cut(name: str, shown: str) -> str:
    beginning = shown.replace("/", "-").encode()[:KEPT_OF_CUT].decode(errors="ignore")
    return f"{beginning}_x{hashlib.sha256(name.encode()).hexdigest()[:12]}_"


def escape_all(names: Iterable[str]) -> dict[str, str]:
    """By name how MLflow has it: none is a folder of another, as `loss` would be of `loss/total`."""
    known = set(names)
    return {name: escape(name, parts=not (known & set(_folders(name)))) for name in known}


def _folders(name: str) -> list[str]:
    return [str(folder) for folder in PurePosixPath(name).parents]


def whole_names(names: Iterable[str]) -> dict[str, str]:
    """Tags that have the whole of names that were cut."""
    found = {name: CUT.search(escape(name)) for name in names}
    return {f"{WHOLE}{cut[1]}": name for name, cut in found.items() if cut}


def unescape(shown: str, tags: Mapping[str, str]) -> str:
    """The name as the lab had it."""
    cut = CUT.search(shown)
    if cut and f"{WHOLE}{cut[1]}" in tags:
        return tags[f"{WHOLE}{cut[1]}"]
    return CODE.sub(lambda code: _character(code[1]) or code[0], shown)


def _character(code: str) -> str:
    """Empty for a code that no character has."""
    number = int(code, 16)
    return chr(number) if number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF else ""
