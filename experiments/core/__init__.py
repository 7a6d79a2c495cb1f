"""What every family shares: errors, units, events, metrics, papers, knobs, policies, specs and outcomes."""
