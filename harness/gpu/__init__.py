"""What CUDA backends call of the vendor's kernels, in plain torch on the CPU, with every argument checked.

`sgl_kernel.install()` makes sgl_kernel importable with FlashAttention 3's attention over a paged cache
(`flash_attention`) and the plan of its work (`schedule`). Nothing here was checked against a GPU. Each assumption about
the kernels is a comment where it is made; whatever is not emulated refuses by its name.
"""
