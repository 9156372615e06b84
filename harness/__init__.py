"""Differential testing of sglang's Ascend attention backend in speculative decoding."""

__version__ = "0.1.0"
