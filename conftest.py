"""Options, markers and the header line; the bench that the suite in `cases/` judges with."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from harness.campaign.profile import PROFILES, Profile
from harness.campaign.run import example_database
from harness.doctor import cann_version, has_npu, version
from harness.errors import HarnessError
from harness.report.replay import unanswered_sentence
from harness.subject.pending import unanswered
from harness.subject.source import Source, resolve

CASES = Path(__file__).parent / "cases"
DEVICES = ("emulated", "npu", "cuda")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("harness", "sglang's Ascend backend in speculative decoding")
    group.addoption("--sglang", metavar="SPEC", help="installed, a release, a directory or git:DIR@REV")
    group.addoption("--profile", choices=sorted(PROFILES), default="pr", help="how much is tried (pr)")
    group.addoption("--device", choices=DEVICES, help="where the subject runs (emulated, or what -m selects)")
    for name, what in (
        ("--target-model", "folder of Qwen3-8B, for the nightly acceptance run"),
        ("--draft-model", "folder of its DFlash-b16 draft"),
        ("--cuda-run", "the acceptance run of a CUDA server with both, that `harness accept run` has written"),
        ("--cuda-run-again", "another run of that server along the answers of the first: what noise is in bfloat16"),
        ("--accept-prompts", "the prompts of that run; those that ship"),
    ):
        group.addoption(name, metavar="PATH", type=Path, help=what)
    group.addoption("--baseline", metavar="REL", help="accept the known findings of this release, too")


def pytest_configure(config: pytest.Config) -> None:
    device = _device(config)
    if device == "cuda":
        raise pytest.UsageError(
            "the cases are about the Ascend backend: `harness record --subject cuda` records a GPU, to compare with."
        )
    if device == "npu" and not has_npu():
        raise pytest.UsageError(
            "an NPU was asked for, and none can be used here: `harness doctor` says what is missing."
        )
    _register_profiles()
    settings.load_profile(config.getoption("--profile"))
    config.stash[DEVICE] = device


DEVICE = pytest.StashKey[str]()


def _device(config: pytest.Config) -> str:
    """The device asked for by `--device`, or by selecting its marker (`-m npu`)."""
    asked = config.getoption("--device")
    if asked is None:
        selected = re.findall(r"(?<!not )\b(npu|cuda)\b", config.getoption("-m") or "")
        asked = selected[0] if selected else "emulated"
    return str(asked)


def _register_profiles() -> None:
    """Hypothesis profiles of the same names; `nightly` shares its failing examples through a database."""
    for profile in PROFILES.values():
        database = example_database(profile)
        settings.register_profile(
            profile.name,
            max_examples=profile.examples,
            derandomize=profile.derandomize,
            deadline=None,
            database=DirectoryBasedExampleDatabase(database) if database else None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
            print_blob=True,
        )


def pytest_report_header(config: pytest.Config) -> list[str]:
    source = _source(config)
    sglang = f"{source.release} ({source.spec})" if isinstance(source, Source) else "none"
    header = (
        f"harness: device {config.stash[DEVICE]}, torch {version('torch') or 'none'}, "
        f"torch_npu {version('torch_npu') or 'emulated'}, CANN {cann_version() or 'none'}, sglang {sglang}, "
        f"profile {config.getoption('--profile')}, seed {_seed(config)}"
    )
    return [header, *map(unanswered_sentence, unanswered())]


def _seed(config: pytest.Config) -> str:
    profile: Profile = PROFILES[config.getoption("--profile")]
    return "fixed" if profile.derandomize else str(config.getoption("--hypothesis-seed", default=None) or "random")


def _source(config: pytest.Config) -> Source | HarnessError:
    """The sglang under test, or why there is none."""
    try:
        return resolve(config.getoption("--sglang") or os.environ.get("HARNESS_SGLANG"))
    except HarnessError as error:
        return error


@pytest.fixture(scope="session")
def source(request: pytest.FixtureRequest) -> Source:
    """The sglang under test; a run without one fails, it does not skip."""
    found = _source(request.config)
    if isinstance(found, HarnessError):
        pytest.fail(str(found), pytrace=False)
    return found


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """How pytest-xdist deals out the tests, whatever `--dist` says.

    All cases go to one worker, since they share a subject and its counts; the tests of a file go to another.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return CASES.name if file.startswith(f"{CASES.name}/") else file

    return Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every case is marked with the device it would run on.

    Nightly cases run in the nightly profile, and where `-m` selects them.
    """
    for item in items:
        if CASES in item.path.parents:
            item.add_marker(config.stash[DEVICE])
    selected = re.search(r"(?<!not )\bnightly\b", config.getoption("-m") or "")
    if config.getoption("--profile") != "nightly" and not selected:
        nightly = [item for item in items if item.get_closest_marker("nightly")]
        if nightly:
            config.hook.pytest_deselected(items=nightly)
            items[:] = [item for item in items if item not in nightly]


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """`emulated` or `npu`."""
    yield request.config.stash[DEVICE]
