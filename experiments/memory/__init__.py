"""Memory: offload, swap, recompute, compress: what of a step stays on the device."""
