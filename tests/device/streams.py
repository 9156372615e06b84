"""Streams in program order, and held back by a script, so that a missing wait is an ordinary failing test."""

import pytest

from harness.npu import install

install()

import torch  # noqa: E402

from harness.npu.interleaving import early, late  # noqa: E402


def _side() -> torch.npu.Stream:
    return torch.npu.Stream()


def _rewritten_while_needed(waits: bool) -> list[int]:
    """A side stream still needs a buffer that the main stream rewrites; with `waits`, the main stream waits first."""
    main, side = torch.npu.current_stream(), _side()
    buffer = torch.tensor([1, 2], device="npu")
    with late(side):
        side.wait_stream(main)
        with torch.npu.stream(side):
            doubled = buffer * 2
        if waits:
            main.wait_stream(side)
        buffer.fill_(0)
        side.synchronize()
        return doubled.tolist()


def test_a_buffer_rewritten_while_a_late_stream_needs_it_is_seen() -> None:
    assert _rewritten_while_needed(waits=False) == [0, 0]


def test_a_buffer_rewritten_after_a_wait_is_safe() -> None:
    assert _rewritten_while_needed(waits=True) == [2, 4]


def test_without_a_script_work_runs_in_the_order_of_the_program() -> None:
    buffer = torch.tensor([1, 2], device="npu")
    with torch.npu.stream(_side()):
        doubled = buffer * 2
    buffer.fill_(0)

    assert doubled.tolist() == [2, 4]


@pytest.mark.parametrize("waits", [False, True])
def test_an_early_stream_overtakes_what_it_does_not_wait_for(waits: bool) -> None:
    main, side = torch.npu.current_stream(), _side()
    source = torch.zeros(2, dtype=torch.int64, device="npu")
    with early(side):
        source.add_(5)
        if waits:
            side.wait_stream(main)
        with torch.npu.stream(side):
            seen = source + 0
        side.synchronize()
        with torch.npu.stream(side):
            values = seen.tolist()

    assert values == ([5, 5] if waits else [0, 0])
    assert source.tolist() == [5, 5]


def test_an_event_waits_for_what_was_submitted_before_it_only() -> None:
    side = _side()
    value = torch.zeros(1, dtype=torch.int64, device="npu")
    with late(side):
        with torch.npu.stream(side):
            value.add_(1)
            event = side.record_event()
            value.add_(10)
        assert not event.query()
        event.synchronize()
        assert event.query() and not side.query()
        assert value.tolist() == [1]
    assert value.tolist() == [11]


def test_an_asynchronous_copy_to_the_host_is_not_there_before_it_is_waited_for() -> None:
    side = _side()
    there = torch.tensor([4, 2], device="npu")
    with late(side):
        with torch.npu.stream(side):
            host = torch.zeros(2, dtype=torch.int64, pin_memory=True).copy_(there, non_blocking=True)
            done = side.record_event()
        assert host.tolist() == [0, 0]
        done.synchronize()
        assert host.tolist() == [4, 2]


def test_a_blocking_copy_to_the_host_waits_by_itself() -> None:
    side = _side()
    with late(side), torch.npu.stream(side):
        assert torch.tensor([4, 2], device="npu").mul(2).cpu().tolist() == [8, 4]


@pytest.mark.parametrize(("pinned", "arrives"), [(True, [9]), (False, [1])])
def test_a_pinned_source_is_read_when_the_copy_runs(pinned: bool, arrives: list[int]) -> None:
    side = _side()
    source = torch.tensor([1], pin_memory=pinned)
    with late(side), torch.npu.stream(side):
        there = source.to("npu", non_blocking=True)
        source.fill_(9)
        assert there.tolist() == arrives


def test_sizes_that_depend_on_data_wait_for_it() -> None:
    side = _side()
    with late(side), torch.npu.stream(side):
        mask = torch.tensor([1, 0, 1], device="npu").mul(2) > 1
        assert torch.arange(3, device="npu")[mask].tolist() == [0, 2]


def test_every_kind_of_operator_can_be_late() -> None:
    side = _side()
    base = torch.arange(6.0, device="npu")
    with late(side), torch.npu.stream(side):
        grid = base.view(2, 3)
        grid[0] += 1
        out = torch.empty(0, device="npu")
        torch.abs(grid, out=out)
        values, indices = grid.topk(2)
        parts = grid.split(1)
        grid[1, torch.tensor([0], device="npu")] = 7.0
        picked = torch.cat([parts[1].flatten(), out.flatten()]).remainder_(8)
    assert grid.tolist() == [[1, 2, 3], [7, 4, 5]]
    assert picked.tolist() == [7, 4, 5, 1, 2, 3, 3, 4, 5]
    assert (values.tolist(), indices.tolist()) == ([[3, 2], [5, 4]], [[2, 1], [2, 1]])


def test_an_error_of_late_work_comes_when_it_runs() -> None:
    side = _side()
    with late(side):
        with torch.npu.stream(side):
            torch.arange(3, device="npu").index_select(0, torch.tensor([5], device="npu"))
        with pytest.raises(IndexError):
            side.synchronize()


def test_events_measure_time() -> None:
    before, after = torch.npu.Event(), torch.npu.Event()
    before.record()
    after.record()

    assert before.elapsed_time(after) >= 0


def test_a_stream_context_can_be_entered_again_and_leaves_the_stream_there_was() -> None:
    outer, side = torch.npu.current_stream(), _side()
    context = torch.npu.StreamContext(side)
    for _ in range(2):
        with context:
            assert torch.npu.current_stream() is side
            with torch.npu.StreamContext(None):
                assert torch.npu.current_stream() is side
        assert torch.npu.current_stream() is outer
