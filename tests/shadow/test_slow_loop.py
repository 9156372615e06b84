"""The record against a slow loop over positions: they find the same in any history of a small pool."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.npu.boundary import AttentionRead
from harness.shadow.record import Shadow
from tests.shadow.pool import KEYS, READ, VALUES, write
from tests.shadow.slow_shadow import SlowShadow


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, int, list[tuple[str, Any]]]:
    """A small pool, and calls on its record that an allocator could have made, with any events in between."""
    pages, page_size = draw(st.integers(2, 6)), draw(st.integers(1, 3))
    held: dict[int, set[int]] = {}
    firsts: dict[int, int] = {}
    calls: list[tuple[str, Any]] = []
    page_numbers = st.integers(-1, pages) | st.integers(1, pages - 1)
    for name in draw(
        st.lists(st.sampled_from(["reserve", "share", "free", "wrote", "step", "read", "write"]), max_size=16)
    ):
        row = draw(st.integers(1, 3))
        taken = set().union(*held.values())
        if name == "reserve":
            new = [p for p in draw(st.permutations(range(1, pages))) if p not in taken][: draw(st.integers(0, 3))]
            first = len(held.get(row, ())) * page_size
            firsts |= {page: first + index * page_size for index, page in enumerate(new)}
            held.setdefault(row, set()).update(new)
            calls.append(("reserve", (row, new, first, draw(st.booleans()))))
        elif name == "share":
            for page in sorted(taken - held.get(row, set()))[:1]:
                held.setdefault(row, set()).add(page)
                calls.append(("reserve", (row, [page], firsts[page], True)))
        elif name == "free" and row in held:
            del held[row]
            calls.append(("free", (row,)))
        elif name == "wrote" and taken:
            slots = [page * page_size + offset for page in taken for offset in range(page_size)]
            calls.append(("wrote", (draw(st.lists(st.sampled_from(slots))),)))
        elif name == "step":
            rows = draw(st.lists(st.integers(1, 3), unique=True, max_size=3))
            calls.append(("begin_step", (rows, [draw(st.integers(0, 4)) for _ in rows])))
        elif name == "read":
            count, width = draw(st.integers(0, 4)), draw(st.integers(0, 4))
            table = [[draw(page_numbers) for _ in range(width)] for _ in range(count + draw(st.integers(-1, 1)))]
            lengths = tuple(draw(st.integers(-1, 8)) for _ in range(count))
            block_table = np.array(table, dtype=np.int64).reshape(len(table), width)
            queries = tuple(draw(st.integers(0, 3)) for _ in range(4))
            cache = draw(st.sampled_from([KEYS, VALUES]))
            calls.append(("check", (AttentionRead(READ, cache, page_size, pages, block_table, lengths, queries),)))
        elif name == "write":
            slots = draw(st.lists(st.integers(-1, pages * page_size), max_size=6))
            calls.append(("check", (write(slots, draw(st.sampled_from([KEYS, VALUES]))),)))
    return pages, page_size, calls


@settings(max_examples=300, deadline=None)
@given(histories())
def test_the_record_finds_what_a_slow_loop_over_positions_finds(
    history: tuple[int, int, list[tuple[str, Any]]],
) -> None:
    pages, page_size, calls = history
    fast, slow = Shadow(pages, page_size), SlowShadow(pages, page_size)
    for name, arguments in calls:
        got = getattr(fast, name)(*arguments)
        expected = getattr(slow, name)(*arguments)
        if name == "check":
            assert len(set(got)) == len(got)
            assert set(got) == expected
