"""The catalogue of systems, their claims and our verdicts."""
