"""What is shared out among devices: embedding tables, experts, servers, parts of a collective."""
