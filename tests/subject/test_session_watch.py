"""What a watched forward touches is judged by the cache that is meant, and all calls for one batch together."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from harness.npu.boundary import AttentionRead, CacheWrite, Event, TileWrite
from harness.npu.paged_cache import TILE
from harness.scenario.observation import Forward
from harness.subject.session.watch import Watch

PAGE, PAGES, LATENTS, ROTARY, COPY = 4, 8, 1, 2, 9
#: Rows 1 and 2 have pages 2 and 3.
TABLE = torch.tensor([[0] * 4, [8, 9, 10, 11], [12, 13, 14, 15]])


def watched(call: Callable[[Watch], None], lengths: tuple[int, ...] = (3, 2)) -> Watch:
    """A watch after an extend of rows 1 and 2 from nothing to `lengths`, in which `call` was made."""
    pools: Any = SimpleNamespace(windows=frozenset(), widths={LATENTS: 2 * TILE, ROTARY: TILE})
    accounts: Any = SimpleNamespace(page_size=PAGE, in_window=lambda slots: slots)
    watch = Watch(lambda row: row - 1, pools, accounts)
    runner = SimpleNamespace(
        is_draft_worker=False,
        req_to_token_pool=SimpleNamespace(req_to_token=TABLE),
        sliding_window_size=None,
    )
    batch = SimpleNamespace(
        forward_mode=SimpleNamespace(name="EXTEND"),
        batch_size=len(lengths),
        req_pool_indices=torch.tensor([1, 2][: len(lengths)]),
        seq_lens=torch.tensor(lengths),
        seq_lens_cpu=torch.tensor(lengths),
        extend_seq_lens_cpu=list(lengths),
        spec_info=None,
    )
    watch.around(lambda owner: owner, lambda owner, batch: call(watch))(runner, batch)
    return watch


def told(watch: Watch) -> Forward:
    (forward,) = watch.forwards
    return forward


def wrong(watch: Watch) -> list[str]:
    return [access.kind for access in watch.accesses]


def read(*rows: tuple[int, int], cache: int = LATENTS) -> AttentionRead:
    """A call that reads so many positions of a page, for each of `rows`."""
    pages, lengths = zip(*rows, strict=True)
    return AttentionRead("attend", cache, PAGE, PAGES, np.array(pages)[:, np.newaxis], lengths, lengths)


def write(*slots: int, cache: int = LATENTS) -> CacheWrite:
    return CacheWrite("store", cache, np.array(slots))


def events(*some: Event) -> Callable[[Watch], None]:
    return lambda watch: [watch(event) for event in some] and None


WRITES = (write(8, 9, 10, 12, 13), write(8, 9, 10, 12, 13, cache=ROTARY))


def test_calls_request_by_request_are_one_batch() -> None:
    watch = watched(events(*WRITES, read((2, 3)), read((3, 2))))

    assert told(watch).reads == ((3, 2),)
    assert wrong(watch) == []


def test_each_of_them_is_judged_as_its_own_request() -> None:
    watch = watched(events(*WRITES, read((2, 3)), read((2, 2))))

    assert wrong(watch) == ["foreign"]


def test_a_batch_that_is_left_in_the_middle_misses_a_row() -> None:
    watch = watched(events(*WRITES, read((2, 3))))

    assert wrong(watch) == ["rows-missing"]


def test_a_copy_is_judged_as_both_caches_that_were_written_last() -> None:
    assert wrong(watched(events(*WRITES, read((2, 3), (3, 2), cache=COPY)))) == []
    assert wrong(watched(events(WRITES[0], write(8, 9, 12, 13, cache=ROTARY), read((2, 3), (3, 2), cache=COPY)))) == [
        "never-written"
    ]


def test_tiles_are_the_slots_of_their_rows() -> None:
    def tiles(*slots: int) -> TileWrite:
        """Both tiles of the rows of these slots: (page, tile, position)."""
        places = [slot // PAGE * 2 * PAGE + tile * PAGE + slot % PAGE for slot in slots for tile in (0, 1)]
        return TileWrite("scatter", LATENTS, np.array(places))

    assert wrong(watched(events(tiles(8, 9, 10, 12, 13), read((2, 3), (3, 2))))) == []
    assert wrong(watched(events(tiles(8, 9, 12, 13), read((2, 3), (3, 2))))) == ["never-written"]
    assert wrong(watched(events(tiles(8, 9, 10, 12, 13, 20)))) == ["not-reserved"]


def test_what_is_scattered_to_something_else_is_no_write() -> None:
    assert wrong(watched(events(TileWrite("scatter", 77, np.array([400]))))) == []
