"""Carries out what deployment policies decide: groups of devices, passes, copies of weights."""

from experiments.serving.simulator.deployment.engine import simulate_deployment
from experiments.serving.simulator.deployment.figures import (
    Queries,
    attainment_by_model,
    deployment_curves,
    deployment_figures,
)

__all__ = ["Queries", "attainment_by_model", "deployment_curves", "deployment_figures", "simulate_deployment"]
