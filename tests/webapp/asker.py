"""Asks for addresses as anybody and takes back what was changed."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from typing import Any

from django.core.signals import got_request_exception
from django.db import transaction

from tests.webapp.cast import signed_in
from tests.webapp.over_asgi import Answer, Application, Headers, Views
from tests.webapp.populated import Populated
from webapp.accounts.models import User

CSRF = "c" * 32
FORM = "application/x-www-form-urlencoded"


class Asker:
    """``sessions`` are of people, ``secrets`` of tokens, others are nobody; ``cause`` is what the last
    request raised. Over ASGI as in production, where ``application`` is nothing else.
    """

    def __init__(self, lab: Populated, application: Application | Views | None = None) -> None:
        people = {name: getattr(lab.cast, name) for name in ("ada", "max", "vera", "sly")}
        people["bob"] = User.objects.get(username="bob")
        people["gone"] = User.objects.create_user("gone", password="pw")
        people["root"] = User.objects.create_superuser("root", password="pw")
        self.sessions = {name: signed_in(user).cookies["sessionid"].value for name, user in people.items()}
        self.secrets, self.cause = lab.secrets, ""
        self._application = application or Application()
        got_request_exception.connect(self._note)

    def _note(self, **kwargs: Any) -> None:
        self.cause = traceback.format_exc(limit=-3)

    def ask(
        self,
        actor: str,
        method: str,
        path: str,
        query: str = "",
        *,
        body: bytes = b"",
        content_type: str = FORM,
        headers: Headers = (),
    ) -> Answer:
        """The answer to a request whose path is percent-encoded; thousands of refusals are not logged."""
        self.cause = "no exception"
        sent = [*self._headers(actor, headers, body), ("content-type", content_type), *headers]
        logging.disable(logging.CRITICAL)
        try:
            with transaction.atomic():
                answer = self._application.ask(method.upper(), path, query, sent, body)
                transaction.set_rollback(True)
        finally:
            logging.disable(logging.NOTSET)
        return answer

    def _headers(self, actor: str, given: Headers, body: bytes) -> Iterator[tuple[str, str]]:
        """Who it is, unless the headers say so, and what a form of ours sends along."""
        names = {name for name, _ in given}
        if actor in self.secrets and "authorization" not in names:
            yield "authorization", f"Bearer {self.secrets[actor]}"
        if "cookie" not in names:
            session = self.sessions.get(actor)
            yield "cookie", f"csrftoken={CSRF}" + (f"; sessionid={session}" if session else "")
        if "x-csrftoken" not in names:
            yield "x-csrftoken", CSRF
        if "content-length" not in names:
            yield "content-length", str(len(body))
