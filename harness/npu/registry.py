"""What is emulated, by the dotted name under which sglang reaches it; all else is a stub.

A room that emulates something registers it with `emulates`; importers meet it through `lookup`.
"""

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

_Emulated = TypeVar("_Emulated")

_emulated: dict[str, Any] = {}


class Stub:
    """Stands for something that is not emulated: can be imported, indexed and looked into, but not called."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse, saying what is missing."""
        raise NotImplementedError(f"{self.__name__} is not emulated (see harness/npu)")

    def __getitem__(self, grid: Any) -> "Stub":
        """A Triton kernel is indexed by its grid before it is called."""
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lookup(f"{self.__name__}.{name}")

    def __repr__(self) -> str:
        return f"<not emulated: {self.__name__}>"


def emulates(name: str) -> Callable[[_Emulated], _Emulated]:
    """Register what follows as the emulation of `name`, such as ``sgl_kernel_npu.norm.l1_norm.l1_norm``.

    Operators have one name however they are reached: ``npu.<operator>``.
    """

    def register(emulated: _Emulated) -> _Emulated:
        _emulated[name] = emulated
        return emulated

    return register


def lookup(name: str, reached_as: str | None = None) -> Any:
    """What emulates `name`, or a stub that names itself as it was reached."""
    found = _emulated.get(name)
    return Stub(reached_as or name) if found is None else found


def emulated_names() -> list[str]:
    """The names of everything that is emulated."""
    return sorted(_emulated)
