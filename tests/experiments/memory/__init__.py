"""The memory family: plans, simulator, live runner, policies."""
