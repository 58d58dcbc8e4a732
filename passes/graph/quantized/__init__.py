"""Passes on quantized weights and products: what they compute with, and how codes lie in memory."""
