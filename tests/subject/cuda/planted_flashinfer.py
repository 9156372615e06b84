"""The FlashInfer subject with one fault planted in sglang.

Run as `python planted_flashinfer.py FAULT … PATH DEVICE`, where the dots stand for the command line it replaces.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from msgspec.structs import replace

from harness.subject import __main__ as subject
from harness.subject.cuda import prepare as cuda
from harness.subject.frames import SubjectInfo


def command(fault: str) -> tuple[str, ...]:
    """What starts the subject with `fault`, a name of `BEFORE` or `AFTER` or one of two others.

    `planned-short` is about every plan, `half` no fault, but float16.
    """
    return (sys.executable, str(Path(__file__).resolve()), fault)


def _outside(arguments: dict[str, Any]) -> None:
    arguments["kv_indices"][0] = 10_000


def _too_long(arguments: dict[str, Any]) -> None:
    arguments["kv_indptr"][-1] += 1_000


def _short(arguments: dict[str, Any]) -> None:
    arguments["kv_indptr"][-1] -= 1


def _hidden(arguments: dict[str, Any]) -> None:
    if arguments["custom_mask"] is not None:
        arguments["custom_mask"][0] = False


def _stale(wrapper: Any) -> None:
    wrapper._paged_kv_indptr_buf[-1] -= 1


#: What is done to the arguments of a verify's plan, and to the wrapper after it.
BEFORE: dict[str, Callable[[dict[str, Any]], None]] = {
    "outside": _outside,
    "too-long": _too_long,
    "short": _short,
    "hidden": _hidden,
}
AFTER: dict[str, Callable[[Any], None]] = {"stale": _stale}
_imported = cuda.imported


def _imported_with(fault: str) -> Callable[[str, str], SubjectInfo]:
    def imported(path: str, device: str) -> SubjectInfo:
        info = _imported(path, device)
        if fault == "half":
            return replace(info, dtype="float16")
        from harness.gpu.attention_plan import Planner
        from harness.gpu.paged_wrapper import BatchPrefillWithPagedKVCacheWrapper

        if fault == "planned-short":
            made = Planner.plan

            def shorter(self: Any, *arguments: Any) -> Any:
                plan = made(self, *arguments)
                return plan._replace(lengths=tuple(length - 1 for length in plan.lengths))

            Planner.plan = shorter  # type: ignore[method-assign]
            return info
        right = BatchPrefillWithPagedKVCacheWrapper.plan

        def wrong(self: Any, qo: Any, kv: Any, indices: Any, *rest: Any, **options: Any) -> None:
            arguments = {"kv_indptr": kv, "kv_indices": indices, "custom_mask": options.get("custom_mask")}
            BEFORE.get(fault, lambda _: None)(arguments)
            right(self, qo, kv, indices, *rest, **options)
            AFTER.get(fault, lambda _: None)(self)

        BatchPrefillWithPagedKVCacheWrapper.plan = wrong  # type: ignore[method-assign]
        return info

    return imported


if __name__ == "__main__":
    cuda.imported = _imported_with(sys.argv[1])
    sys.argv = [sys.argv[0], *sys.argv[-2:]]
    subject.main()
