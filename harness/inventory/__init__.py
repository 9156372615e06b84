"""What is covered of a release, and what is assumed: pages of `docs/`, which ``python -m harness.inventory`` writes."""
