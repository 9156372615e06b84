"""A plugin of pytest that has the suite in `cases/` find an NPU: the fake one, with the deviations of `DEVIATIONS`."""

import os

from harness import doctor
from harness.conformance import answers
from tests.conformance.fake_npu import COMMAND

doctor.has_npu = lambda: True
answers.COMMANDS["npu"] = (*COMMAND, os.environ["DEVIATIONS"])
