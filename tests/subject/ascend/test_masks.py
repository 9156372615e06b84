"""Masks that are made once: a copy for each backend, of what sglang itself makes."""

import pytest
import torch

from harness.subject.ascend import masks


def builder() -> type:
    class Builder:
        made = 0

        def __init__(self, device: str) -> None:
            self.device = device

        @staticmethod
        def generate_mask_flag(size: int) -> torch.Tensor:
            Builder.made += 1
            return torch.ones(size, size, dtype=torch.bool).triu(1)

        def get_splitfuse_attn_mask(self, size: int | torch.Tensor) -> torch.Tensor:
            Builder.made += 1
            return torch.ones(int(size), int(size)).triu(1).to(torch.int8)

    return Builder


def test_a_mask_is_made_once_for_each_size_and_device_and_is_what_its_maker_makes() -> None:
    kind, plain = builder(), builder()
    masks.make_once(kind)
    for size in (3, 4, 3, 4):
        assert torch.equal(kind.generate_mask_flag(size), plain.generate_mask_flag(size))
        assert torch.equal(kind("cpu").get_splitfuse_attn_mask(size), plain("cpu").get_splitfuse_attn_mask(size))
    assert (kind.made, plain.made) == (4, 8)
    kind("meta").get_splitfuse_attn_mask(3)
    assert kind.made == 5


@pytest.mark.parametrize("maker", masks.MAKERS)
def test_who_writes_to_a_mask_changes_no_other(maker: str) -> None:
    kind = builder()
    masks.make_once(kind)
    make = getattr(kind("cpu"), maker)
    expected = make(3).clone()
    make(3).fill_(1)
    assert torch.equal(make(3), expected)


def test_a_mask_of_tensors_is_made_anew() -> None:
    kind = builder()
    masks.make_once(kind)
    for size in (3, 4):
        assert kind("cpu").get_splitfuse_attn_mask(torch.tensor(size)).shape == (size, size)
    assert kind.made == 2
