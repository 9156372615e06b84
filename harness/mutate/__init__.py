"""Mutants of sglang's own source, run in its subject's memory: what the checks would catch, measured."""
