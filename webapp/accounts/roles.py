"""Ranks of roles: what each may do includes what those before it may do."""

from __future__ import annotations

from webapp.accounts.models import Role

RANKS: tuple[str, ...] = (Role.VIEWER, Role.MEMBER, Role.ADMIN)


def allows(have: str, need: str) -> bool:
    """``member`` allows what a ``viewer`` may do, ``admin`` everything."""
    return RANKS.index(have) >= RANKS.index(need)
