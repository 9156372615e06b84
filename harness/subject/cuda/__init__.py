"""The CUDA subject: sglang's own attention backends, on a GPU, or interpreted and emulated on the CPU.

Only these modules import them, and only inside the subject's own process. What does not depend on the device
(batches, steps, layers, the pools' pages) is that of the Ascend subject.
"""
