"""What `./lab` does, in the standard library alone: it runs before anything is installed."""
