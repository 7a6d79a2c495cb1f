"""Template tags of the advisor's page."""
