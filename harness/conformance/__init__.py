"""Cases that say what each emulated operator does, and the means to ask a real NPU for the same.

The emulation's semantics are assumptions until a device confirms them. Each case has inputs, what must come of them,
and the `Rule` in `harness/npu` that says so; where a device does something else, that is the rule to change.
"""
