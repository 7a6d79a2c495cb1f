"""How each operator is divided among all devices: configurations, their costs, and searches over them."""
