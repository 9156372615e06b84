"""The CUDA subject: sglang's own Triton attention backend, on a GPU, or interpreted on the CPU.

Only these modules import its backend, and only inside the subject's own process. What does not depend on the device
(batches, steps, layers, the pools' pages) is that of the Ascend subject.
"""
