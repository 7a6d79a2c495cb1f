"""Numbers in fewer bits, in numpy alone: quantization schemes, calibration of ranges, bounds of rounding errors."""
