"""Reports made, written, kept as they are and taken away."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from webapp.accounts.models import Project, User
from webapp.reports.blocks import Block
from webapp.reports.content import content_of
from webapp.reports.models import Frozen, Report, Revision

#: What a new report has, as an example of both blocks.
BEGINNING = """What was asked, and what came out.

```runs title="The fastest of each policy" limit=20
mode = simulated group by policy: min(step_time), min(peak_memory), count
```

```plot x=peak_memory y=step_time title="Memory against time"
mode = simulated
```
"""


class WrittenMeanwhile(Exception):
    """Somebody else has written ``latest`` since the text was opened."""

    def __init__(self, latest: Revision) -> None:
        super().__init__(f"{latest.by or 'somebody who left'} has written meanwhile")
        self.latest = latest


@transaction.atomic
def make(project: Project, by: User, title: str, text: str = BEGINNING) -> Report:
    report = Report.objects.create(project=project, title=title, made_by=by)
    Revision.objects.create(report=report, text=text, by=by)
    return report


@transaction.atomic
def write(report: Report, by: User, title: str, text: str, opened: int) -> None:
    """The report from now on. ``opened`` is the revision that its writer had before them: raises
    ``WrittenMeanwhile`` where that is no more the last one.
    """
    Report.objects.select_for_update().get(pk=report.pk)
    latest = latest_of(report)
    if latest.pk != opened:
        raise WrittenMeanwhile(latest)
    if title != report.title:
        report.title = title
        report.save(update_fields=["title"])
    if text != latest.text:
        Revision.objects.create(report=report, text=text, by=by)


def latest_of(report: Report) -> Revision:
    return report.revisions.select_related("by").latest("pk")


def freeze(report: Report, block: Block, by: User) -> None:
    """Keep what the block's search finds now; who froze it first remains."""
    found = content_of(report.project, block).to_json()
    Frozen.objects.get_or_create(report=report, key=block.key, defaults={"found": found, "by": by})


def thaw(report: Report, key: str) -> None:
    """The block's search is asked again from now on."""
    report.frozen.filter(key=key).delete()


def set_trashed(report: Report, is_trashed: bool) -> None:
    report.trashed_at = timezone.now() if is_trashed else None
    report.save(update_fields=["trashed_at"])
