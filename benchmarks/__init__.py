"""The harness's speed on its own work: ratios and medians measured in one run; `python -m benchmarks`."""
