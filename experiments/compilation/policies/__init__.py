"""The compilation policies: found by being in this folder."""
