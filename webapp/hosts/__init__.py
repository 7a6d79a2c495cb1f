"""The machines that carry out runs."""
