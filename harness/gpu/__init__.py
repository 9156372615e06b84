"""What CUDA backends call of the vendor's kernels, in plain torch on the CPU, with every argument checked.

`sgl_kernel.install()` makes sgl_kernel importable with FlashAttention 3's attention over a paged cache
(`flash_attention`) and the plan of its work (`schedule`). `flashinfer.install()` does so with FlashInfer's wrappers
over a paged cache (`paged_wrapper`) and over keys side by side (`ragged_wrapper`), their plans (`attention_plan`) and
masks (`custom_mask`). Both compute by `dense`. Nothing here was checked against a GPU. Each assumption about the
kernels is a comment where it is made; whatever is not emulated refuses by its name.
"""
