"""The palette (Ctrl-K): whatever has a name in a project, found and gone to from the keyboard."""
