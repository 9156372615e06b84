"""torchair, the compiler of the NPU: a function "compiled" by it is run as it is."""

from typing import Any

from harness.npu.registry import emulates


@emulates("torchair.configs.compiler_config.CompilerConfig")
class CompilerConfig:
    """The compiler's settings: any can be set, at any depth, and none has an effect."""

    def __getattr__(self, name: str) -> "CompilerConfig":
        if name.startswith("__"):
            raise AttributeError(name)
        section = CompilerConfig()
        setattr(self, name, section)
        return section


@emulates("torchair.get_npu_backend")
def get_npu_backend(compiler_config: Any = None) -> str:
    """The backend for `torch.compile`.

    Assumption: compiled and eager code compute the same. On a device: one forward with and without the compiler.
    """
    return "eager"
