"""The search language of runs: ``parse`` reads it, ``rows`` asks the database, ``words`` says it back."""

from webapp.history.search.parse import SearchError, parse
from webapp.history.search.tree import Query

__all__ = ["Query", "SearchError", "parse"]
