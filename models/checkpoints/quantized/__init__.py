"""Checkpoints whose Linears are codes with scales, one module for each `quant_method`, and what they stand for."""
