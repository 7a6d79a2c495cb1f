"""Experiments, runs and their results. Postgres is the truth about a run; a message is only a wake-up."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from django.db import models
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.functional import cached_property

from webapp.accounts.models import Project, User
from webapp.artifacts.models import Artifact
from webapp.hosts.models import Host
from webapp.runs.by_name import ByName


class ExperimentQuerySet(models.QuerySet["Experiment"]):
    def not_trashed(self) -> ExperimentQuerySet:
        return self.filter(trashed_at=None)

    def with_counts(self) -> ExperimentQuerySet:
        """Adds how many runs there are, by state: ``total``, ``queued``, ``running``, ``succeeded`` ..."""
        by_state = {state: RunCount.sum_of(state=state) for state in Run.State.values}
        return self.annotate(total=RunCount.sum_of(), **by_state).order_by("-created_at", "-id")

    def newest(self, first: int, last: int) -> list[Experiment]:
        """Those from ``first`` on and before ``last``, with the same counts: of a few that are in no other
        order they are read sooner apart.
        """
        found = list(self.order_by("-created_at", "-id")[first:last])
        counts = RunCount.objects.filter(experiment__in=[one.pk for one in found]).order_by()
        told: dict[Any, dict[str, int]] = {one.pk: dict.fromkeys(Run.State.values, 0) for one in found}
        for key, state, count in counts.values_list("experiment", "state").annotate(models.Sum("count")):
            told[key][state] = count
        for one in found:
            vars(one).update(told[one.pk], total=sum(told[one.pk].values()))
        return found


class Experiment(models.Model):
    """A set of runs launched together: a grid of workloads x hardware x policies x knobs."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="experiments")
    name = models.CharField(max_length=160)
    request = models.JSONField(
        default=dict, help_text="what was asked for: fills the form of 'again with changes'"
    )
    pinned = models.ForeignKey("Run", on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    trashed_at = models.DateTimeField(null=True, blank=True)
    is_logged = models.BooleanField(
        default=False, db_default=False, help_text="its runs are those of people's own programs"
    )

    objects = ExperimentQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["project", "-created_at"]),
            models.Index(
                fields=["project"],
                name="experiment_trash",
                condition=models.Q(trashed_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def get_additional_data(self) -> dict[str, int]:
        """For the audit log: whose log an entry belongs to."""
        return {"team": self.project.team_id}

    @property
    def states_in_words(self) -> list[tuple[str, str]]:
        """What is to be said of its runs, by state: what moves and what went wrong, and only else that all
        succeeded. Needs the counts of ``with_counts``.
        """
        counts = [(state, getattr(self, state)) for state in Run.State]
        said = [(str(s), s.count_in_words(n)) for s, n in counts if n and s != Run.State.SUCCEEDED]
        everything = [(str(Run.State.SUCCEEDED), str(Run.State.SUCCEEDED))]
        return said or (everything if getattr(self, "total", 0) else [])


class Preset(models.Model):
    """A new experiment that somebody gave a name, for everybody of the project.

    ``address`` is its state as the query of its page (``choices.py``), so that a link opens it.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="presets")
    name = models.CharField(max_length=80)
    address = models.TextField()
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="one_preset_a_name")]

    def __str__(self) -> str:
        return self.name

    def get_additional_data(self) -> dict[str, int]:
        """For the audit log: whose log an entry belongs to."""
        return {"team": self.project.team_id}


class RunQuerySet(models.QuerySet["Run"]):
    def containing(self, text: str, project: Project) -> RunQuerySet:
        """Runs of ``project`` whose policy, workload or experiment has ``text`` in its name."""
        named = {"project": project, "name__icontains": text}
        files, made = Artifact.objects.filter(**named), Experiment.objects.filter(**named)
        by_name = models.Q(artifact__in=files.values("pk")) | models.Q(experiment__in=made.values("pk"))
        return self.filter(models.Q(policy__icontains=text) | by_name)

    def older_than(self, last: Run) -> RunQuerySet:
        """The page after ``last`` of a list that has the newest first."""
        same_time = models.Q(queued_at=last.queued_at, pk__lt=last.pk)
        return self.filter(models.Q(queued_at__lt=last.queued_at) | same_time)

    def with_figures(self) -> RunQuerySet:
        """Each run comes with its ``figures``."""
        own = RunMetric.objects.filter(run=models.OuterRef("pk")).order_by().values("run")
        by_name = models.Subquery(own.annotate(by_name=ByName("name", "value")).values("by_name"))
        return self.annotate(**{"figures": by_name})

    def queue_lengths(self) -> dict[str, int]:
        """How many runs wait: ``total``, and those that ask for ``anywhere``, ``cpu`` or ``cuda``."""
        needs = {"anywhere": "", "cpu": "cpu", "cuda": "cuda"}
        counts = {name: models.Count("id", filter=models.Q(needs=need)) for name, need in needs.items()}
        return self.filter(state=Run.State.QUEUED).aggregate(total=models.Count("id"), **counts)

    def policies_by_answer(
        self, artifact: Artifact, family: str, hardware: str, options: Mapping[str, Any]
    ) -> dict[str, set[str]]:
        """Policies whose simulated run on just this workload, hardware and step had an answer, by the run's
        state.
        """
        asked = {f"spec__workload__options__{name}": value for name, value in options.items()}
        runs = self.filter(artifact=artifact, family=family, mode="simulated", hardware=hardware, **asked)
        found: dict[str, set[str]] = {str(state): set() for state in Run.ANSWERED}
        for state, policy in runs.filter(state__in=Run.ANSWERED).values_list("state", "policy"):
            found[state].add(policy)
        return found


RunQueries = models.Manager.from_queryset(RunQuerySet)


class RunManager(RunQueries["Run"]):
    """Runs that are not in the trash: what every page, list and count is about."""

    def get_queryset(self) -> RunQuerySet:
        return RunQuerySet(self.model, using=self._db).filter(trash=None)


class TrashedRuns(models.Model):
    """Runs that went into the trash together; without it they are back."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="trashed_runs")
    by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    why = models.CharField(max_length=200, blank=True)
    count = models.PositiveIntegerField()
    trashed_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        runs = "1 run" if self.count == 1 else f"{self.count:,} runs"
        return f"{runs} {self.why}".strip()

    def get_additional_data(self) -> dict[str, int]:
        """For the audit log: whose log an entry belongs to."""
        return {"team": self.project.team_id}


class Run(models.Model):
    """One trial and its life. ``attempt`` is the fencing number: every write of a worker says which attempt
    it is.

    ``kind`` is ``policy`` for a RunSpec; reading an upload, capturing and profiling a Step live the same
    life. A run with ``after`` is claimed only once that run has succeeded. One that is ``logged`` is nobody's
    to claim: a program elsewhere says how it goes (``webapp.logged``).
    """

    class Kind(models.TextChoices):
        POLICY = "policy", "policy"
        INSPECT = "inspect", "read a file"
        CAPTURE = "capture", "capture a step"
        PROFILE = "profile", "profile on a host"
        ADVISE = "advise", "look for the best plan"
        VALIDATE = "validate", "validate a device"
        LOGGED = "logged", "logged by a program"

    #: What has figures of its own: carried out here, or by a program that says so.
    RECORDED = (Kind.POLICY, Kind.LOGGED)

    class State(models.TextChoices):
        QUEUED = "queued", "queued"
        RUNNING = "running", "running"
        SUCCEEDED = "succeeded", "succeeded"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"
        REJECTED = "rejected", "rejected"
        INFEASIBLE = "infeasible", "does not fit"

        def count_in_words(self, count: int) -> str:
            """``3 failed``, ``1 does not fit``, ``2 do not fit``."""
            return f"{count} {'do not fit' if self == 'infeasible' and count != 1 else self.label}"

    #: It ended with an answer: figures, or that the plan does not fit.
    ANSWERED = (State.SUCCEEDED, State.INFEASIBLE)
    FINAL = (*ANSWERED, State.FAILED, State.CANCELLED, State.REJECTED)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="runs")
    experiment = models.ForeignKey(
        Experiment, on_delete=models.CASCADE, null=True, blank=True, related_name="runs"
    )
    artifact = models.ForeignKey(
        Artifact, on_delete=models.CASCADE, null=True, blank=True, related_name="runs"
    )
    owner = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True, related_name="runs")
    kind = models.CharField(max_length=10, choices=Kind, default=Kind.POLICY)

    # What is asked for. ``spec`` has the artifact's id as its workload source; the worker puts the file's
    # place in.
    spec = models.JSONField(default=dict)
    spec_id = models.CharField(max_length=64, blank=True, db_index=True)
    family = models.CharField(max_length=20, blank=True)
    policy = models.CharField(max_length=80, blank=True)
    hardware = models.CharField(max_length=120, blank=True)
    mode = models.CharField(max_length=10, blank=True)
    seed = models.BigIntegerField(default=0)
    needs = models.CharField(
        max_length=40, blank=True, help_text="device kind a host must have; empty: any host"
    )
    revision = models.CharField(
        max_length=40,
        blank=True,
        default="",
        db_default="",
        help_text="of the code that carries it out; empty: the host's own",
    )
    priority = models.SmallIntegerField(default=0)
    turn = models.BigIntegerField(default=0, help_text="among equal priorities; see runs.turns")
    effort = models.CharField(max_length=10, blank=True, help_text="how long its policy takes to decide")
    after = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="followers"
    )

    # Its life.
    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    attempt = models.PositiveIntegerField(default=0)
    host = models.ForeignKey(Host, on_delete=models.SET_NULL, null=True, blank=True, related_name="runs")
    lease_until = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    infrastructure_losses = models.PositiveIntegerField(default=0)
    not_before = models.DateTimeField(null=True, blank=True, help_text="when it may be claimed again")
    crashes = models.PositiveIntegerField(default=0)
    cancel_requested = models.BooleanField(default=False)
    progress = models.FloatField(default=0.0)
    progress_step = models.CharField(max_length=120, blank=True)
    progress_at = models.DateTimeField(null=True, blank=True)
    queued_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    # How it ended. ``outcome_status`` is the Outcome's, of which ``state`` follows (``lifecycle.STATES``).
    outcome_status = models.CharField(max_length=12, blank=True)
    reason = models.TextField(blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    signal = models.CharField(max_length=20, blank=True)
    peak_rss_bytes = models.BigIntegerField(null=True, blank=True)
    model_states = models.TextField(
        blank=True, help_text="what training keeps for a parameter, by part, in words"
    )
    dashboard_status = models.CharField(
        max_length=24, blank=True, help_text="of a compiled model, in the words of PyTorch's dashboard"
    )
    sandbox_tier = models.CharField(max_length=40, blank=True)
    log_tail = models.TextField(blank=True)

    trash = models.ForeignKey(
        TrashedRuns, on_delete=models.SET_NULL, null=True, blank=True, related_name="runs", db_index=False
    )

    objects = RunManager()
    #: With those in the trash.
    everything = RunQuerySet.as_manager()

    class Meta:
        ordering = ["-queued_at", "-id"]
        indexes = [
            models.Index(
                fields=["-priority", "turn", "queued_at", "id"],
                name="run_turns",
                condition=models.Q(state="queued"),
            ),
            models.Index(fields=["lease_until"], name="run_leases", condition=models.Q(state="running")),
            models.Index(
                fields=["not_before"],
                name="run_pauses",
                condition=models.Q(state="queued", not_before__isnull=False),
            ),
            models.Index(fields=["experiment", "queued_at"], name="run_of_experiment"),
            models.Index(fields=["project", "-queued_at", "-id"], name="run_history"),
            models.Index(fields=["-queued_at", "-id"], name="run_newest"),
            models.Index(
                fields=["project", "family", "-queued_at"],
                name="run_answers",
                condition=models.Q(state="succeeded"),
            ),
            models.Index(
                models.F("project"),
                Coalesce("finished_at", "queued_at"),
                name="run_ended",
                condition=models.Q(
                    state__in=["succeeded", "infeasible", "failed", "cancelled", "rejected"]  # Run.FINAL
                ),
            ),
            models.Index(fields=["trash"], name="run_trash", condition=models.Q(trash__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.policy or self.kind} {self.id}"

    @property
    def is_final(self) -> bool:
        return self.state in self.FINAL

    @cached_property
    def figures(self) -> dict[str, float]:
        """Its metrics by name, as it was read (``with_figures``) or when they are first asked for."""
        return dict(self.metrics.values_list("name", "value"))


class RunCount(models.Model):
    """A part of how many runs of an experiment are in a state: their number is the sum over ``slot``. What is
    in the trash does not count.

    Kept by triggers on the table of runs (migrations 0010 and 0013) and written by nothing else. Each
    connection adds in a slot of its own, so that workers that end runs of one experiment do not wait for each
    other; a part may be negative. The database deletes the rows with their experiment.
    """

    pk = models.CompositePrimaryKey("experiment_id", "state", "slot")
    experiment = models.ForeignKey(
        Experiment, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="counts"
    )
    state = models.CharField(max_length=10)
    slot = models.SmallIntegerField()
    count = models.BigIntegerField()

    @classmethod
    def sum_of(cls, **narrowed: str) -> Coalesce:
        """For a query of experiments: the number of their runs ``narrowed`` to a state."""
        parts = cls.objects.filter(experiment=models.OuterRef("pk"), **narrowed).order_by()
        whole = parts.values("experiment").annotate(sum=models.Sum("count")).values("sum")
        return Coalesce(models.Subquery(whole), 0, output_field=models.BigIntegerField())


#: Characters of the name of a figure.
LONGEST_METRIC = 60


class RunMetric(models.Model):
    """One figure of a run, narrow and indexed; unit and direction come from ``experiments.core.metrics``."""

    # The constraint's index, which has the value too, finds the figures of a run and is all that they take.
    run = models.ForeignKey(Run, on_delete=models.CASCADE, db_index=False, related_name="metrics")
    name = models.CharField(max_length=LONGEST_METRIC)
    value = models.FloatField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "name"], include=["value"], name="figure_of_run")
        ]
        indexes = [models.Index(fields=["name", "value"], include=["run"], name="metric_with_its_run")]


class RunDocument(models.Model):
    """What is long about a run: the whole Outcome with series and plan, apart from the row."""

    run = models.OneToOneField(Run, on_delete=models.CASCADE, related_name="document", primary_key=True)
    outcome = models.JSONField()
