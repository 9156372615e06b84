"""`harness accept` on a server that is made up: what is kept, what is refused, and how it goes on."""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import cli
from harness.commands import accept as accept_command
from harness.parity.acceptance_file import read
from harness.parity.acceptance_run import Run
from harness.subject.server import api
from harness.subject.source import ASCEND_BACKEND
from tests.subject.fake_server import FakeServer, answer, serving

ROOT = Path(__file__).parents[1]
COUNT = 20


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    monkeypatch.setattr(api, "PAUSES", (0.0, 0.0))
    with serving() as fake:
        yield fake


Ran = tuple[object, str]
Accept = Callable[..., Ran]


@pytest.fixture
def accept(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Accept:
    """Run `harness accept`; the status, and all that was said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["harness", "accept", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return end.value.code, "".join(capsys.readouterr())

    return run


def options(server: FakeServer, out: str = "run.jsonl", **changes: object) -> list[object]:
    """The arguments of a run of 20 answers of 12 tokens, with a step at every sixth."""
    chosen: dict[str, object] = {"count": COUNT, "new-tokens": 12, "concurrency": 4, "out": out}
    chosen |= {name.replace("_", "-"): value for name, value in changes.items()}
    return ["run", "--server", server.url, *(word for name, value in chosen.items() for word in (f"--{name}", value))]


def test_a_run_keeps_prompts_counts_scores_steps_and_who_was_asked(server: FakeServer, accept: Accept) -> None:
    status, said = accept(*options(server, template="Q: {prompt}"))
    run = read(Path("run.jsonl"))

    assert status == 0 and "20 of 20 prompts, 4.000 (4.000) over 60 verifies, 40 replayed steps, 20 scored." in said
    assert bytes(run.replies[0].prompt).startswith(b"Q: A baker fills 14 trays")
    assert (run.replies[0].verifies, run.replies[0].correct, run.replies[0].histogram) == (3, 9, (0, 0, 0, 3))
    assert run.own[0].choices == run.replies[0].tokens
    assert run.own[0].gaps == pytest.approx([2.5] * 12)
    assert {key: step.correct for key, step in run.steps.items() if key[0] == 0} == {(0, 0): 3, (0, 6): 3}
    system, setting = run.header.system, run.header.setting
    assert (system.release, system.device, system.dtype, system.tensor_parallel, system.graphs, system.seed) == (
        "0.5.23",
        "npu",
        "bfloat16",
        2,
        False,
        7,
    )
    assert (setting.template, setting.concurrency, setting.algorithm, setting.draft_tokens) == (
        "Q: {prompt}",
        4,
        "DFLASH",
        4,
    )


def test_requests_are_never_more_than_the_concurrency_and_reach_it(server: FakeServer, accept: Accept) -> None:
    full = threading.Barrier(4)  # breaks, and with it the run, where fewer than four are ever asked at once
    inside: list[int] = []
    running = 0
    lock = threading.Lock()

    def counted(body: dict[str, Any]) -> tuple[int, object]:
        nonlocal running
        if body.get("return_logprob"):
            return answer(body)
        with lock:
            running += 1
            inside.append(running)
        full.wait(timeout=30)
        with lock:
            running -= 1
        return answer(body)

    server.generate = counted

    assert accept(*options(server, stride=0))[0] == 0
    assert max(inside) == 4


def test_a_server_that_dies_half_way_is_reported_and_the_same_command_goes_on(
    server: FakeServer, accept: Accept
) -> None:
    left = 12

    def dies(body: dict[str, Any]) -> tuple[int, object]:
        nonlocal left
        left -= 1
        return answer(body) if left >= 0 else (0, None)

    server.generate = dies
    status, said = accept(*options(server, concurrency=1))
    assert status == 3
    assert (
        "nobody answers at http://127.0.0.1" in said and "12 of 20 prompts are answered, and kept in run.jsonl" in said
    )
    assert "Traceback" not in said

    accept(*options(server, "other.jsonl", concurrency=1))
    status, said = accept("compare", "run.jsonl", "run.jsonl")
    assert status == 3 and "answers to 12 of 20 prompts (nobody answers" in said

    server.generate = answer
    assert server.info is not None
    server.info["random_seed"] = 8  # as of a server that has drawn another one at its new start
    asked_before = len(server.asked)
    assert accept(*options(server, concurrency=1))[0] == 0
    assert len(server.asked) - asked_before == 8 + 20 + 40
    assert accept("compare", "run.jsonl", "run.jsonl")[0] == 0


def test_a_connection_that_breaks_once_is_tried_again(server: FakeServer, accept: Accept) -> None:
    broken: list[int] = []

    def breaks_first(body: dict[str, Any]) -> tuple[int, object]:
        if len(broken) < 2:
            broken.append(1)
            return 0, None
        return answer(body)

    server.generate = breaks_first

    assert accept(*options(server, concurrency=1))[0] == 0


def _without(name: str) -> Callable[[dict[str, Any]], tuple[int, object]]:
    def generate(body: dict[str, Any]) -> tuple[int, object]:
        status, told = answer(body)
        assert isinstance(told, dict)
        del told["meta_info"][name]
        return status, told

    return generate


@pytest.mark.parametrize(
    ("generate", "status", "words"),
    [
        (_without("spec_verify_ct"), 3, "answers without spec_verify_ct in meta_info"),
        (_without("spec_correct_drafts_histogram"), 3, "answers without spec_correct_drafts_histogram in meta_info"),
        (lambda _: (500, {"error": "out of\n memory"}), 3, 'failed with status 500: {"error": "out of\\n memory"}'),
        (lambda _: (400, {"error": "too long"}), 2, 'refuses with status 400: {"error": "too long"}'),
        (lambda _: (200, b"<html>"), 2, "answers as no sglang server does"),
        (lambda _: (200, {"meta_info": {"finish_reason": {"type": "abort"}}}), 3, "prompt 0 to its end, but ended it"),
    ],
)
def test_what_a_server_does_wrong_ends_the_run_in_one_sentence(
    generate: Callable[[dict[str, Any]], tuple[int, object]],
    status: int,
    words: str,
    server: FakeServer,
    accept: Accept,
) -> None:
    server.generate = generate
    ended, said = accept(*options(server, concurrency=1))

    assert ended == status and words in said
    assert "Traceback" not in said
    assert len(server.asked) == 1  # an error is not asked again
    assert read(Path("run.jsonl")).ended


def test_a_slow_server_is_waited_for_so_long_and_not_asked_twice(server: FakeServer, accept: Accept) -> None:
    told = threading.Event()

    def sleeps(body: dict[str, Any]) -> tuple[int, object]:
        told.wait(30)
        return answer(body)

    server.generate = sleeps
    status, said = accept(*options(server, concurrency=1, patience=1))
    told.set()

    assert status == 3 and "gave no answer in 1 s: raise --patience, or lower --concurrency" in said
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"speculative_algorithm": None}, "does not speculate: start it with --speculative-algorithm"),
        ({"speculative_num_draft_tokens": None}, "does not say speculative_num_draft_tokens"),
        ({"max_running_requests": 2}, "answers 2 requests at once, and --concurrency is 4"),
        ({"tp_size": "two"}, "answers as no sglang server does"),
    ],
)
def test_a_server_that_cannot_be_measured_is_refused(
    changes: dict[str, object], words: str, server: FakeServer, accept: Accept
) -> None:
    assert server.info is not None
    server.info |= changes
    status, said = accept(*options(server))

    assert status == 2 and words in said
    assert not Path("run.jsonl").exists()


def test_an_older_server_tells_of_itself_at_another_path(server: FakeServer, accept: Accept) -> None:
    server.info_path = "/get_server_info"

    assert accept(*options(server))[0] == 0


def test_what_is_no_sglang_server_is_refused(server: FakeServer, accept: Accept) -> None:
    server.info = None

    assert accept(*options(server)) == (
        2,
        f"harness: {server.url} is no sglang server: it has neither /server_info nor /get_server_info.\n",
    )


@pytest.mark.parametrize(
    ("url", "status", "words"),
    [
        ("http://127.0.0.1:9", 3, "nobody answers at http://127.0.0.1:9 (connection refused)."),
        ("127.0.0.1:30000", 2, "'127.0.0.1:30000' is no address of a server: write http://HOST:PORT."),
        ("http://[::1", 2, "is no address of a server"),
    ],
)
def test_a_wrong_url_is_one_sentence(
    url: str, status: int, words: str, accept: Accept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "PAUSES", (0.0,))
    ended, said = accept("run", "--server", url, "--out", "run.jsonl")

    assert ended == status and words in said and said.count("\n") == 1


def test_a_server_that_does_not_score_is_told_of_and_the_rest_is_kept(server: FakeServer, accept: Accept) -> None:
    def refuses(body: dict[str, Any]) -> tuple[int, object]:
        return (400, {"error": "no return_logprob"}) if body.get("return_logprob") else answer(body)

    server.generate = refuses
    status, said = accept(*options(server))
    run = read(Path("run.jsonl"))

    assert status == 0 and "scores nothing, so tokens that differ may not be judged" in said
    assert (len(run.replies), len(run.own), len(run.steps)) == (COUNT, 0, 2 * COUNT)


def test_another_run_in_the_same_file_is_refused(server: FakeServer, accept: Accept) -> None:
    accept(*options(server))

    assert accept(*options(server, new_tokens=13)) == (
        2,
        "harness: run.jsonl holds a run with another setting: name another file, or delete it.\n",
    )


def _pair(server: FakeServer, accept: Accept, **changes: object) -> tuple[Run, Run]:
    """A reference, and a candidate along its answers."""
    accept(*options(server, "ref.jsonl", **changes))
    accept(*options(server, "cand.jsonl", base="ref.jsonl", order=5, **changes))
    return read(Path("ref.jsonl")), read(Path("cand.jsonl"))


def test_a_candidate_is_put_to_the_prefixes_of_the_reference(server: FakeServer, accept: Accept) -> None:
    reference, candidate = _pair(server, accept)
    status, said = accept("compare", "ref.jsonl", "cand.jsonl", "--json", "found.json")

    assert candidate.header.base == reference.digest
    assert candidate.base.keys() == reference.own.keys()
    assert status == 0 and "verdict: EQUIVALENT" in said
    assert json.loads(Path("found.json").read_text())["verdict"] == "EQUIVALENT"


def test_a_base_with_another_setting_is_refused_before_anything_is_asked(server: FakeServer, accept: Accept) -> None:
    accept(*options(server, "ref.jsonl"))
    server.asked.clear()
    status, said = accept(*options(server, "cand.jsonl", base="ref.jsonl", concurrency=2))

    assert status == 2 and "cannot be compared: they differ in concurrency (4 and 2)" in said
    assert server.asked == [] and not Path("cand.jsonl").exists()


def test_less_acceptance_is_status_1_and_shown_by_position(server: FakeServer, accept: Accept) -> None:
    accept(*options(server, "ref.jsonl"))

    def less(body: dict[str, Any]) -> tuple[int, object]:
        status, told = answer(body)
        assert isinstance(told, dict)
        if verifies := told["meta_info"].get("spec_verify_ct"):
            counts = {"spec_num_correct_drafts": verifies, "spec_correct_drafts_histogram": [0, verifies, 0, 0]}
            told["meta_info"] |= counts
        return status, told

    server.generate = less
    accept(*options(server, "cand.jsonl", base="ref.jsonl"))
    status, said = accept("compare", "ref.jsonl", "cand.jsonl")

    assert status == 1 and "-50.00%" in said and "verdict: REGRESSED" in said


def test_the_same_acceptance_with_another_output_is_status_1(server: FakeServer, accept: Accept) -> None:
    accept(*options(server, "ref.jsonl", device="emulated"))
    assert server.info is not None

    def wrong(body: dict[str, Any]) -> tuple[int, object]:
        status, told = answer(body)
        assert isinstance(told, dict)
        told["output_ids"][-1] = 7
        return status, told

    server.generate = wrong
    accept(*options(server, "cand.jsonl"), "--device", "emulated")
    accept(*options(server, "aa.jsonl", order=2), "--device", "emulated")
    status, said = accept("compare", "ref.jsonl", "cand.jsonl", "--aa", "ref.jsonl", "ref.jsonl", "--profile", "pr")

    assert status == 2 and "replayed other prefixes" in said
    for name in ("ref", "cand"):
        server.generate = answer if name == "ref" else wrong
        accept(*options(server, f"{name}-free.jsonl", stride=0))
    status, said = accept("compare", "ref-free.jsonl", "cand-free.jsonl", "--aa", "ref-free.jsonl", "ref-free.jsonl")
    assert status == 1 and "verdict: NOT LOSSLESS" in said and "EQUIVALENT" in said


@pytest.fixture
def sglang(tmp_path: Path) -> Path:
    """An sglang whose server is the one that is made up; it writes down its process and its arguments."""
    package = tmp_path / "checkout" / "sglang"
    for name in ("sglang/__init__.py", ASCEND_BACKEND):
        (package.parent / name).parent.mkdir(parents=True, exist_ok=True)
        (package.parent / name).touch()
    (package / "launch_server.py").write_text(
        "import json, os, sys, time\n"
        "from pathlib import Path\n"
        "from tests.subject.fake_server import serving\n"
        "print('loading', flush=True)\n"
        "if '--model-path' not in sys.argv:\n"
        "    sys.exit('launch_server.py: error: --model-path is required')\n"
        "told = {'pid': os.getpid(), 'arguments': sys.argv[1:], 'emulated': os.environ.get('HARNESS_NPU_EMULATE')}\n"
        "Path('started.json').write_text(json.dumps(told))\n"
        "with serving(int(sys.argv[-1])):\n"
        "    time.sleep(600)\n"
    )
    return package.parent


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(accept_command, "require_installed", lambda: None)


@pytest.mark.usefixtures("importable")
def test_an_engine_is_started_with_the_arguments_asked_and_ended(sglang: Path, accept: Accept) -> None:
    status, said = accept(
        "run", "--engine", "--model-path 'a model'", "--sglang", sglang, "--count", COUNT, "--out", "run.jsonl"
    )
    started = json.loads(Path("started.json").read_text())

    assert status == 0 and "20 of 20 prompts" in said
    assert started["arguments"][:4] == ["--device", "npu", "--model-path", "a model"]
    assert started["emulated"] == "1"
    assert read(Path("run.jsonl")).header.system.device == "emulated"
    with pytest.raises(ProcessLookupError):
        os.kill(started["pid"], 0)


@pytest.mark.usefixtures("importable")
def test_an_engine_that_does_not_start_is_told_with_its_last_words(sglang: Path, accept: Accept) -> None:
    status, said = accept("run", "--engine", "--port 1", "--sglang", sglang, "--out", "run.jsonl")

    assert status == 3
    assert "ended before it served: launch_server.py: error: --model-path is required" in said


def test_arguments_that_are_no_words_are_refused(sglang: Path, accept: Accept, importable: None) -> None:
    status, said = accept("run", "--engine", "--model-path 'a", "--sglang", sglang, "--out", "run.jsonl")

    assert status == 2 and "are no arguments: No closing quotation" in said


@pytest.mark.parametrize("ways", [[], ["--tiny", "--server", "http://there"], ["--engine", "", "--tiny"]])
def test_a_run_asks_exactly_one(ways: list[str], accept: Accept) -> None:
    status, said = accept("run", *ways, "--out", "run.jsonl")

    assert status == 2 and "name one of --server URL, --engine ARGS and --tiny" in said


def test_a_run_that_does_not_exist_is_refused(accept: Accept) -> None:
    assert accept("compare", "a", "b") == (2, "harness: cannot read the run a: No such file or directory.\n")


def test_the_second_of_two_looks_is_at_fresh_prompts_and_has_to_be_declared(server: FakeServer, accept: Accept) -> None:
    for out, skip in (("ref.jsonl", 0), ("more.jsonl", 20)):
        assert accept(*options(server, out, skip=skip))[0] == 0
    two = ("ref.jsonl", "ref.jsonl", "--more", "more.jsonl", "more.jsonl")

    status, said = accept("compare", *two, "--two-looks")
    assert status == 0 and "40 prompts" in said
    status, said = accept("compare", *two)
    assert status == 2 and "were to be declared with the first" in said


def test_positions_of_replayed_steps_have_tests_of_their_own(server: FakeServer, accept: Accept) -> None:
    accept(*options(server))
    _, said = accept("compare", "run.jsonl", "run.jsonl")

    assert "p of a change" in said and "lost, won" in said
