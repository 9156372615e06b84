"""A device fault: an operator used an address outside its memory, and the process lost the device."""

from typing import NoReturn

_faults: list[str] = []


class DeviceFault(RuntimeError):
    """The device stopped with error 507015; nothing in this process can use it again."""


def fail(operator: str, what: str) -> NoReturn:
    """Stop the device: `operator` reached what `what` says."""
    _faults.append(f"{operator}: {what}")
    raise DeviceFault(
        f"{operator}: error code 507015, aicore exception: "
        f"the DDR address of the MTE instruction is out of range ({what})"
    )


def refuse_after_fault(operator: str) -> None:
    """Raise `DeviceFault` where an earlier operator has stopped the device."""
    # Assumption: after a fault every operator fails, whatever memory it uses. On a device: after a page outside of the
    # cache, call an operator on other tensors in the same process.
    if _faults:
        raise DeviceFault(
            f"{operator}: error code 507015, the context is unusable since an aicore exception in {_faults[0]}"
        )


def reset() -> None:
    """Give the device back to a test; a real process has to be restarted."""
    _faults.clear()
