"""What several planners of memory moves share; nothing here executes anything."""
