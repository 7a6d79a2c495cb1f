"""Which axes of a graph may be padded, and what padding must hold for the real places to stay right."""
