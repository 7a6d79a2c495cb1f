"""The catalog of systems, their claims and our verdicts."""
