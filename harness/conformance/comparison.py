"""What is wrong with an answer, in words that name the rule it speaks against."""

import numpy as np
import torch

from harness.conformance.case import Answer, Case, Value, Values

#: How many units in the last place of its type a right result may be off, for numbers of about 1.
UNITS = 4.0


def why_not_right(case: Case, emulated: Answer) -> str:
    """How the emulation differs from the reference of `case`, or an empty string."""
    if case.expected is None:
        if emulated.outcome == "refused" and case.rule.speaks_in(emulated.text):
            return ""
        return f"{case.name}: the emulation should refuse this by its rule, but {_said(emulated)}.\n{case.rule.place()}"
    if emulated.outcome != "returned":
        return f"{case.name}: the emulation should compute this, but {_said(emulated)}.\n{case.rule.place()}"
    expected: Values = {
        name: value if isinstance(value, str) else torch.from_numpy(np.asarray(value))
        for name, value in case.expected().items()
    }
    difference = _difference(emulated.values, expected)
    if not difference:
        return ""
    return f"{case.name}: on the emulated NPU, {difference} of the reference.\n{case.rule.place()}"


def why_different(case: Case, real: Answer, emulated: Answer) -> str:
    """How a real NPU differs from the emulation, and which rule of the emulation is thereby wrong."""
    if real.outcome == emulated.outcome == "returned":
        difference = _difference(real.values, emulated.values)
        what = f"{difference} of the emulation" if difference else ""
    elif real.outcome == emulated.outcome:
        what = ""
    else:
        what = f"the device {_said(real)}, but the emulation {_said(emulated)}"
    if not what:
        return ""
    return f"{case.name}: on this NPU, {what}.\nIt contradicts {case.rule.place()}\n({case.source}, {case.operators})"


def _said(answer: Answer) -> str:
    words = {
        "returned": "computes it",
        "refused": "refuses it",
        "lost": "is lost",
        "not emulated": "does not know it",
        "no answer": "gives no answer",
    }[answer.outcome]
    return f"{words} ({answer.text.splitlines()[0][:300]})" if answer.text else words


def _difference(actual: Values, right: Values) -> str:
    """The first value that is not as it should be, ending so that `of the …` can follow."""
    if actual.keys() != right.keys():
        return f"the values are {sorted(actual)} instead of {sorted(right)}"
    return next((text for name in right if (text := _of_value(name, actual[name], right[name]))), "")


def _of_value(name: str, actual: Value, right: Value) -> str:
    if isinstance(actual, str) or isinstance(right, str):
        return "" if actual == right else f"{name!r} is {actual!r} instead of the {right!r}"
    if actual.numel() != right.numel():
        return f"{name} is of shape {list(actual.shape)} instead of the {list(right.shape)}"
    found, wanted = actual.double().flatten(), right.double().flatten()
    bound = 0.0
    if actual.is_floating_point():
        largest = float(torch.where(wanted.isfinite(), wanted.abs(), 0.0).max())
        bound = UNITS * torch.finfo(actual.dtype).eps * max(1.0, largest)
    errors = torch.where(found == wanted, 0.0, (found - wanted).abs())  # infinities have no difference
    wrong = ~(errors <= bound)
    if not bool(wrong.any()):
        return ""
    place = int(wrong.nonzero()[0])
    return (
        f"{name}[{place}] is {found[place]:.6g}, off by {errors[place]:.3g} where {bound:.3g} is noise "
        f"({int(wrong.sum())} of {len(wrong)} are), from the {wanted[place]:.6g}"
    )
