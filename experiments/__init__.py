"""What an ML-systems experiment is and how it runs. Needs torch, numpy and scipy; knows no web framework."""

__version__ = "0.1.0"
