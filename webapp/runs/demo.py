"""What a fresh installation shows: samples, models of the zoo and one experiment on its way."""

from __future__ import annotations

from experiments.core import registry
from webapp.accounts.models import Project, User
from webapp.artifacts import services as artifacts
from webapp.artifacts.samples import SAMPLES
from webapp.runs import services
from webapp.runs.grid import Grid, expand
from webapp.runs.models import Experiment

ZOO = ("gpt2", "vgg16")
DEVICE = "titan-x-12g"


def load(project: Project, user: User) -> Experiment:
    for sample in SAMPLES.values():
        artifacts.add_sample(project, user, sample.file_name, sample.content())
    models = [artifacts.add_zoo(project, user, name) for name in ZOO]
    policies = [f"memory/{name}" for name in registry.family_policies("memory")]
    for model in models:
        model.kind = "model"  # what the worker will find: the grid needs to know it now
    asked = Grid(artifacts=models, policies=policies, devices=[DEVICE])
    request = {"artifacts": [model.pk for model in models], "policies": policies, "devices": [DEVICE],
               "modes": ["simulated"], "seeds": "0"}  # fmt: skip
    return services.submit_experiment(
        project, user, name="Memory policies on 12 GB", trials=expand(asked).trials, request=request
    )
