"""Advice on training one model: what is asked, what fits, what it costs, and how to set it up.

``ask``         the question: a workload, devices and a goal.
``ladder``      on one device the changes that are tried, each added to those before.
``rows``        one way to train there, carried out by ``experiments.run``, with its figures.
``advice``      all ways tried on one device, and the one chosen under the goal.
``words``       that answer in sentences.
``cluster``     the search over plans for several devices.
``answer``      the answer as a document, the same for one device and several.
``one_device``  the ladder's answer as such a document.
``settings``    the plan as settings to copy.
``validation``  how far the simulator was off on the device.
"""

from experiments.advisor.advice import Advice, advise_on_device
from experiments.advisor.answer import Answer
from experiments.advisor.ask import GOALS, Ask
from experiments.advisor.cluster import ClusterAdvice, advise_on_cluster, answer_on_cluster
from experiments.advisor.one_device import answer_on_device
from experiments.advisor.validation import describe_validation
from experiments.advisor.words import sentences
from experiments.core.progress import Progress, silent

__all__ = [
    "GOALS",
    "Advice",
    "Answer",
    "Ask",
    "ClusterAdvice",
    "advise",
    "answer_of",
    "describe_validation",
    "sentences",
]


def advise(ask: Ask, progress: Progress = silent) -> Advice | ClusterAdvice:
    """Look for the best way to train what is asked on its device or devices."""
    return (advise_on_cluster if ask.has_several_devices else advise_on_device)(ask, progress)


def answer_of(advice: Advice | ClusterAdvice) -> Answer:
    """Return the advice as a document."""
    return answer_on_device(advice) if isinstance(advice, Advice) else answer_on_cluster(advice)
