"""The memory policies: found by being in this folder."""
