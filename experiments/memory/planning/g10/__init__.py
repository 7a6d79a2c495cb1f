"""Migrations of tensors between device, host and SSD: what G10, UVM, DeepUM and FlashNeuron share."""
