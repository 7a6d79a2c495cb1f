"""Thread blocks of operators' kernels (rTasks) and their placement on a device's units."""
