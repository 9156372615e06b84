"""The masks that every backend makes anew from constants, made once in a process: they are a third of a scan's time."""

import functools
from collections.abc import Callable
from typing import Any

import torch

#: What makes them (0.5.15 to 0.5.23): three masks of 2048 by 2048 for each `AscendAttnBackend`.
MAKERS = ("generate_mask_flag", "get_splitfuse_attn_mask")


def make_once(builder: type) -> None:
    """Have `builder`, sglang's `AscendAttnMaskBuilder`, make each mask once, and hand out copies from then on.

    A copy, since whoever is handed a mask may write to it. A mask of tensors is made as ever.
    """
    for name in MAKERS:
        maker = builder.__dict__[name]
        if isinstance(maker, staticmethod):
            setattr(builder, name, staticmethod(_remembering(maker.__func__)))
        else:
            setattr(builder, name, _remembering(maker))


def _remembering(maker: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    made: dict[tuple[Any, ...], torch.Tensor] = {}

    @functools.wraps(maker)
    def make(*arguments: Any) -> torch.Tensor:
        key = tuple(_constant(argument) for argument in arguments)
        if None in key:
            return maker(*arguments)
        if key not in made:
            made[key] = maker(*arguments)
        return made[key].clone()

    return make


def _constant(argument: Any) -> int | str | None:
    """What a mask depends on: a number, or the device of the builder; None for anything else."""
    if isinstance(argument, int):
        return argument
    device = getattr(argument, "device", None)
    return None if isinstance(argument, torch.Tensor) or device is None else str(device)
