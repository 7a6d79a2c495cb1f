"""What a fresh installation shows: samples, models of the zoo and two experiments on their way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.core import registry
from webapp.accounts.models import Project, User
from webapp.artifacts import services as artifacts
from webapp.artifacts.samples import SAMPLES
from webapp.runs import services
from webapp.runs.grid import Grid, expand
from webapp.runs.models import Experiment


@dataclass(frozen=True)
class Demo:
    """All memory policies on one model of the zoo, on a device where that is a question."""

    name: str
    model: str
    device: str
    options: Mapping[str, Sequence[Any]]


DEMOS = (
    Demo("GPT-2, batch 16, on 12 GB", "gpt2", "titan-x-12g", {"batch": [16]}),
    Demo("VGG-16, batch 256, on 12 GB", "vgg16", "titan-x-12g", {"batch": [256], "optimizer": ["sgd"]}),
)


def load(project: Project, user: User) -> list[Experiment]:
    for sample in SAMPLES.values():
        artifacts.add_sample(project, user, sample.file_name, sample.content())
    return [_submit(project, user, demo) for demo in DEMOS]


def _submit(project: Project, user: User, demo: Demo) -> Experiment:
    model = artifacts.add_zoo(project, user, demo.model)
    model.kind = "model"  # what the worker will find: the grid needs to know it now
    policies = [f"memory/{name}" for name in registry.family_policies("memory")]
    asked = Grid(artifacts=[model], policies=policies, devices=[demo.device], options=demo.options)
    request = {
        "artifacts": [model.pk],
        "policies": policies,
        "devices": [demo.device],
        "modes": ["simulated"],
        "seeds": "0",
        **{f"option:{name}": values[0] for name, values in demo.options.items()},
    }
    trials = expand(asked).trials
    return services.submit_experiment(project, user, name=demo.name, trials=trials, request=request)
