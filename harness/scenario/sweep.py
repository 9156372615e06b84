"""The sweep: every batch of one and two requests within small bounds, without chance.

Configurations (page size, draft tokens, algorithm, executor, host dtype) are the outer loop, so that a subject reuses
one backend for many scenarios.
"""

from collections.abc import Iterator
from itertools import product

from harness.scenario.metadata import Algorithm, Executor, HostDtype, MetadataScenario, Pool, Request

ALGORITHMS: tuple[Algorithm, ...] = ("DFLASH", "EAGLE")
EXECUTORS: tuple[Executor, ...] = ("eager", "graph")
DTYPES: tuple[HostDtype, ...] = ("int64", "int32")
PAGE_SIZES = (1, 16, 64, 128)
CONTEXT_LENGTH = 256
BUCKETS = (1, 2)


def sweep_prefixes(page_size: int, draft_tokens: int) -> tuple[int, ...]:
    """Around the first page end for the prefix and for prefix + block, and around the context end."""
    page = max(page_size, 2)
    lengths = {0, page - 1, page, page + 1, page - draft_tokens, page - draft_tokens + 1}
    lengths |= {CONTEXT_LENGTH - draft_tokens, CONTEXT_LENGTH - 1, CONTEXT_LENGTH}
    return tuple(sorted(length for length in lengths if 0 <= length <= CONTEXT_LENGTH))


def sweep(draft_tokens: range = range(1, 17), pairs: bool = True) -> Iterator[MetadataScenario]:
    """Every batch of one request, and with `pairs` every ordered batch of two, for each configuration."""
    for page_size, block, algorithm, executor in product(PAGE_SIZES, draft_tokens, ALGORITHMS, EXECUTORS):
        pool = Pool(page_size=page_size, context_length=CONTEXT_LENGTH, page_stride=3)
        lengths = sweep_prefixes(page_size, block)
        batches: list[tuple[Request, ...]] = [(Request(prefix),) for prefix in lengths]
        if pairs:
            batches += [(Request(a), Request(b, row=2)) for a, b in product(lengths, lengths)]
        for dtype, batch in product(DTYPES, batches):
            yield MetadataScenario(
                algorithm=algorithm,
                mode="target_verify",
                executor=executor,
                draft_tokens=block,
                pool=pool,
                buckets=BUCKETS if executor == "graph" else (),
                host_dtype=dtype,
                rounds=(batch,),
            )
