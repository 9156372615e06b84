"""The subject that tests with a planted fault hold it beside."""

from collections.abc import Iterator

import pytest

from harness.subject.source import resolve
from harness.subject.supervisor import Supervisor


@pytest.fixture(scope="module")
def right() -> Iterator[Supervisor]:
    """A release that is right in what these tests ask, as it was released."""
    with Supervisor(resolve("0.5.23")) as supervisor:
        yield supervisor
