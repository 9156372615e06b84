"""A sanitizer for the KV cache: what every slot holds, and whether an operator may read or write it."""
