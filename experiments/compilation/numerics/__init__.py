"""Numbers in fewer bits, in numpy alone: quantization schemes, calibration of ranges, which op runs in which type."""
