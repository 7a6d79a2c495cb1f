"""Which layers go together on which devices: cuts, replicas and orders of pipelines."""
