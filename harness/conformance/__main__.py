"""`python -m harness.conformance KIND FOLDER NAME...`: the process of one device; see `answers.py`."""

import os
import sys

import torch

from harness.conformance.answers import path
from harness.conformance.case import Answer
from harness.conformance.cases import CASES
from harness.conformance.device import Device
from harness.conformance.faults import LOST


def answer(name: str, device: Device) -> Answer:
    """What the device says to one case, errors that come late included."""
    try:
        values = CASES[name].run(device)
        if not CASES[name].alone:
            device.synchronize()
        return Answer("returned", values)
    except NotImplementedError as error:
        return Answer("not emulated", text=str(error))
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return Answer("lost" if LOST in text else "refused", text=text)


def main() -> None:
    """Answer one case after the other, and end where the device is lost."""
    kind, folder, *names = sys.argv[1:]
    if kind == "emulated":
        from harness.npu import install

        install()
    device = Device()
    for number, name in enumerate(names):
        given = answer(name, device)
        unfinished = path(folder, number).with_suffix(".part")
        torch.save((given.outcome, dict(given.values), given.text), unfinished)
        os.replace(unfinished, path(folder, number))
        if given.outcome == "lost" or CASES[name].alone:
            # A device that is lost may hang at the end of the interpreter, too.
            os._exit(0)


if __name__ == "__main__":
    main()
