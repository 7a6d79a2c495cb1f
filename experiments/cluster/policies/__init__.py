"""The cluster policies: found by being in this folder."""
