"""Which operators source files name, found without importing them."""

from pathlib import Path

import pytest

from harness.inventory.calls import called


def _called(folder: Path, code: str) -> dict[str, int]:
    (folder / "module.py").write_text(f"import torch, torch_npu\n{code}\n", encoding="utf-8")
    return called(folder).get("module.py", {})


@pytest.mark.parametrize(
    ("code", "operator"),
    [
        ("torch_npu.npu_swiglu(x)", "npu.npu_swiglu"),
        ("torch.ops.npu.npu_swiglu(x)", "npu.npu_swiglu"),
        ("torch.ops.npu.npu_swiglu.default(x)", "npu.npu_swiglu"),
        ("torch.ops.npu.npu_swiglu(x).view(-1).size()", "npu.npu_swiglu"),
        ("torch.ops.npu.npu_swiglu(x)[0].view(-1)", "npu.npu_swiglu"),
        ("torch_npu._npu_paged_attention(x)", "npu._npu_paged_attention"),
        ("torch_npu.npu_score.out(x, out=[x])", "npu.npu_score.out"),
        ("operator = torch_npu.npu_swiglu", "npu.npu_swiglu"),
        ("operator = torch_npu.npu_swiglu if x else None", "npu.npu_swiglu"),
        ("getattr(torch_npu, 'npu_swiglu')(x)", "npu.npu_swiglu"),
        ("from torch_npu import npu_swiglu as own", "npu.npu_swiglu"),
        ("torch.ops.npu.batch_matmul(x)", "npu.batch_matmul"),
        ("torch.ops.custom.compressor(x)", "custom.compressor"),
        ("torch_npu.atb.npu_ring_mla(x)", "atb.npu_ring_mla"),
        ("torch.ops.atb.npu_ring_mla(x)", "atb.npu_ring_mla"),
        ("from sgl_kernel_npu.norm.split import split_qkv", "sgl_kernel_npu.norm.split.split_qkv"),
    ],
)
def test_an_operator_is_found_however_it_is_reached(code: str, operator: str, tmp_path: Path) -> None:
    assert _called(tmp_path, code) == {operator: 2}


@pytest.mark.parametrize(
    "code",
    [
        "torch_npu.npu.NPUGraph()",
        "torch_npu.profiler.profile()",
        "torch.npu.synchronize()",
        "torch.ops.aten.add(x)",
        "torch_npu.npu_swiglu = own",
        "hasattr(torch_npu, 'npu_swiglu')",
        "getattr(torch.ops, space)",
        "getattr(x, 'npu_swiglu')",
        "import sgl_kernel_npu",
        "x = 'torch_npu.npu_swiglu'  # torch_npu.npu_swiglu",
    ],
)
def test_what_is_no_call_of_an_operator_is_not_found(code: str, tmp_path: Path) -> None:
    assert _called(tmp_path, code) == {}


def test_the_first_line_counts(tmp_path: Path) -> None:
    assert _called(tmp_path, "if x:\n    torch_npu.npu_swiglu(x)\ntorch_npu.npu_swiglu(x)") == {"npu.npu_swiglu": 3}
