"""Speculative decoding for vLLM, rolled out behind a measured gate and rolled back exactly."""

__version__ = "0.5.0"
