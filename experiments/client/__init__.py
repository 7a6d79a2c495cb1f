"""The lab from a program: submit runs, read results, log one's own training (docs/own-runs.md).

It needs the standard library alone; pandas and torch are used where they are there. ::

    from experiments.client import Lab

    lab = Lab()                                    # LAB_SERVER, LAB_TOKEN and LAB_PROJECT of the environment
    with lab.log("resnet18", params={"lr": 0.1}) as run:
        for step in range(1000):
            run.log(step, loss=train_step())
"""

from experiments.client.lab import Lab
from experiments.client.own_run import OwnRun
from experiments.client.server import Away, LabError, Refused, Server

__all__ = ["Away", "Lab", "LabError", "OwnRun", "Refused", "Server"]
