"""The Ascend subject: real sglang code of one release, on a real or an emulated NPU.

Only these modules import sglang, and only inside the subject's own process.
"""
