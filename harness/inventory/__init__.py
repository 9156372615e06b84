"""What the emulated NPU covers and what it assumes, as pages of `docs/` that ``python -m harness.inventory`` writes."""
