"""The compilation family: graph records, rewrites, backends, policies."""
