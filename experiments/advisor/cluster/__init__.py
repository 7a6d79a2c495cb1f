"""Advice on training one model on several devices: which of all plans, and why not the others.

``space``         every plan in closed form, on all nodes or on fewer.
``candidates``    one of them as a policy with its knobs.
``ideas``         what a plan divides, in the words of the answer, and how many of each were rejected and why.
``shortlist``     which are simulated, in what order.
``trials``        a candidate carried out by ``experiments.run``.
``choice``        the one chosen under the goal, and three others of the Pareto front.
``reasons``       what each part of the chosen plan costs and frees.
``advice``        ``advise_on_cluster``: all of it.
``phrases``       a plan in words.
``document``      the whole answer in words and figures.
"""

from experiments.advisor.cluster.advice import ClusterAdvice, advise_on_cluster
from experiments.advisor.cluster.document import answer_on_cluster

__all__ = ["ClusterAdvice", "advise_on_cluster", "answer_on_cluster"]
