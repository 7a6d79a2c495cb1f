"""People, teams, their projects and roles."""
