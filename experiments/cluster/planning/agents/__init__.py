"""The agents of jobs that choose their own batch (Pollux, OSDI'21): what they measure and expect of it."""

from experiments.cluster.planning.agents.agent import Agent, Agents

__all__ = ["Agent", "Agents"]
