"""The parallel policies: found by being in this folder."""
