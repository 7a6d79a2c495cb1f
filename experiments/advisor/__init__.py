"""Advice on training one model on one device: what is asked, and where it does not fit what would.

``ask``      the question: a workload, a device and a goal.
``ladder``   the changes that are tried, each added to those before.
``rows``     one way to train, carried out by ``experiments.run``, with its figures.
``advice``   ``advise``: all ways tried, and the one chosen under the goal.
``words``    the answer in sentences.
"""

from experiments.advisor.advice import Advice, advise
from experiments.advisor.ask import GOALS, Ask
from experiments.advisor.words import sentences

__all__ = ["GOALS", "Advice", "Ask", "advise", "sentences"]
