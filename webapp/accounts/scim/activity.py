"""Whether a body asks that somebody is active: the one attribute that is the provider's to change here.

Providers differ: Okta sends an object without a path, Entra a path and the word ``"False"``. Other attributes
(names, addresses, departments) are passed over, since accounts here keep none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from webapp.accounts.scim.gate import Refusal

ACTIVE = "active"
USER = "urn:ietf:params:scim:schemas:core:2.0:User"
MOST_OPERATIONS = 100
OPERATIONS = ("add", "replace", "remove")
WORDS = {"true": True, "false": False}


def asked_by_put(body: dict[str, Any]) -> bool | None:
    """What a whole person says; ``None`` where it does not say it."""
    return _last(_in_object(body))


def asked_by_patch(body: dict[str, Any]) -> bool | None:
    """What the operations say, the last of them."""
    operations = _find(body, "operations")
    if not isinstance(operations, list) or not 0 < len(operations) <= MOST_OPERATIONS:
        raise Refusal(400, f"Operations is no list of 1 to {MOST_OPERATIONS}", "invalidSyntax")
    return _last(asked for one in operations for asked in _by_operation(one))


def _by_operation(one: Any) -> Iterator[bool]:
    if not isinstance(one, dict):
        raise Refusal(400, "an operation is no object", "invalidSyntax")
    name, path, value = (_find(one, key) for key in ("op", "path", "value"))
    if not isinstance(name, str) or name.lower() not in OPERATIONS:
        raise Refusal(400, f"op is {name!r:.80}: one of {', '.join(OPERATIONS)}", "invalidSyntax")
    if path is not None and not isinstance(path, str):
        raise Refusal(400, "path is no text", "invalidPath")
    if name.lower() == "remove":
        _check_removal(path)
    elif path is not None:
        yield from _in_object({path: value})
    elif isinstance(value, dict):
        yield from _in_object(value)
    else:
        raise Refusal(400, "without a path value is an object", "invalidValue")


def _check_removal(path: str | None) -> None:
    """An attribute that nobody keeps here may go; whether somebody is active may not."""
    if not path:
        raise Refusal(400, "remove has no path", "noTarget")
    if _is_active(path):
        raise Refusal(400, "active is replaced, never removed", "mutability")


def _in_object(told: dict[str, Any]) -> Iterator[bool]:
    return (_truth(value) for name, value in told.items() if _is_active(name))


def _is_active(name: str) -> bool:
    """Names of attributes ignore case and may say their schema."""
    return name.strip().lower().removeprefix(f"{USER.lower()}:") == ACTIVE


def _truth(value: Any) -> bool:
    found = WORDS.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise Refusal(400, f"active is {value!r:.80}: true or false", "invalidValue")
    return found


def _find(told: dict[str, Any], key: str) -> Any:
    return next((value for name, value in told.items() if name.lower() == key), None)


def _last(asked: Iterator[bool]) -> bool | None:
    found = list(asked)
    return found[-1] if found else None
