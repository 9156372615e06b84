"""Sliding windows: the hybrid pool's own table, and the mask of the replayed graph."""

from harness.checks.check import Check
from harness.checks.finding import Finding
from harness.checks.rounds import each_round, field
from harness.checks.wording import UNDER, finding, where
from harness.reference.metadata import rows
from harness.scenario import MetadataScenario, PageMap, Request, Scenario
from harness.scenario.observation import Seen

WRONG_POOL = "attention in the sliding-window layers reads another page than the request's: outputs are wrong"


def _window_table(scenario: MetadataScenario, index: int, batch: tuple[Request, ...], seen: Seen) -> Finding | None:
    """Only pages that some query can see are compared: pages before the window may have been freed."""
    table = field(seen, "block_tables_swa", len(batch))
    pages = PageMap(scenario)
    for row, right in enumerate(rows(scenario, batch)):
        first = right.visible[0] // scenario.pool.page_size
        expected = [pages.swa_page(page) for page in right.pages[first:]]
        if table.shape[1] < len(right.pages):
            message = f"block_tables_swa has {table.shape[1]} columns, but {right.kv_length} positions need "
            message += f"{len(right.pages)} [{where(scenario, index, row)}]"
            return finding("window-table", "block_tables_swa", "too-narrow", scenario, message, WRONG_POOL)
        actual = table[row, first : len(right.pages)].tolist()
        for column, (got, page) in enumerate(zip(actual, expected, strict=True), start=first):
            if got != page:
                relation = "full-pool-page" if got == right.pages[column] else "page-wrong"
                message = f"block_tables_swa[{row}, {column}]={got}, but should be {page}"
                message += f" [{where(scenario, index, row)}]"
                return finding("window-table", "block_tables_swa", relation, scenario, message, WRONG_POOL)
    return None


def _window_mask(scenario: MetadataScenario, index: int, batch: tuple[Request, ...], seen: Seen) -> Finding | None:
    """One mask row serves every query of a request, so it must leave visible all that any of them may see.

    `swa_visible` holds, for each row, the first visible position, one past the last, and how many there are.
    """
    masks = field(seen, "swa_visible", len(batch)).tolist()
    for row, (right, mask) in enumerate(zip(rows(scenario, batch), masks, strict=False)):
        start, end, count = mask
        expected_start, expected_end = right.visible
        if end == expected_end and start == expected_start and count == end - start:
            continue
        if count != end - start:
            relation, meaning = "holes", f"{end - start - count} positions between these are hidden: {UNDER}"
        elif end < expected_end:
            relation, meaning = "draft-hidden", "queries do not see the newest tokens, which lie inside the window"
        elif end > expected_end:
            relation, meaning = "beyond-length", "queries see positions that nobody has written"
        elif start > expected_start:
            relation, meaning = "window-short", UNDER
        else:
            relation, meaning = "window-long", "queries see tokens that lie before the window"
        message = f"swa_mask[{row}] leaves {start} to {end} visible, but should leave {expected_start} to "
        message += f"{expected_end} [{where(scenario, index, row)}]"
        return finding("window-mask", "swa_mask", relation, scenario, message, meaning)
    return None


def _exact_window(scenario: Scenario) -> bool:
    return (
        isinstance(scenario, MetadataScenario)
        and scenario.target == "swa"
        and not scenario.lagging
        and scenario.host_view == "published"
    )


CHECKS = (
    Check(
        "window-table",
        "metadata",
        "The sliding-window table names the window pool's page of every position that a query can see.",
        _exact_window,
        each_round(_window_table),
    ),
    Check(
        "window-mask",
        "metadata",
        "The replayed mask leaves visible exactly the window counted from the queries, the draft block included.",
        lambda scenario: _exact_window(scenario) and getattr(scenario, "executor", "") == "graph",
        each_round(_window_mask),
    ),
)
