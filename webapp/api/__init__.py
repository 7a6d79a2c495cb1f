"""The REST API and its tokens."""
