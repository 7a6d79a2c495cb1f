"""``manage.py bootstrap_demo``: the first admin, their team and project, and something to look at.

Prints one JSON line: ``{"username": ..., "password": ...}`` the first time, ``{}`` when there are users
already.
"""

from __future__ import annotations

import json
import secrets
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.db import transaction

from webapp.accounts import services
from webapp.accounts.models import User
from webapp.runs import demo


class Command(BaseCommand):
    help = "Makes the first admin with a generated password, a team and a project, unless there are users."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--username", default="admin")
        parser.add_argument(
            "--no-demo", action="store_true", help="only the account, its team and its project"
        )

    def handle(self, *args: Any, username: str, no_demo: bool, **options: Any) -> None:
        if User.objects.exists():
            self.stdout.write("{}")
            return
        password = secrets.token_urlsafe(12)
        with transaction.atomic():
            start = services.start(username, password, "First team", "Demo")
            if not no_demo:
                demo.load(start.project, start.user)
        self.stdout.write(json.dumps({"username": username, "password": password}))
