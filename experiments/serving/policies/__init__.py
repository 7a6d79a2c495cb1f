"""The serving policies: found by being in this folder."""
