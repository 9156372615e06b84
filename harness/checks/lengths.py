"""KV lengths and query lengths: exact, for every request, in every field that an operator is bound to."""

from itertools import pairwise

from harness.checks.check import Check, NothingToJudge
from harness.checks.finding import Finding
from harness.checks.rounds import each_round, field
from harness.checks.wording import OVER, UNDER, finding, relation, where
from harness.reference.metadata import Row, rows
from harness.scenario import MetadataScenario, Request, Scenario
from harness.scenario.capability import ABSENT_HOST
from harness.scenario.observation import Seen


def length_fields(scenario: MetadataScenario) -> tuple[str, ...]:
    """The fields whose lengths reach an attention operator (read in `ascend_backend.py`, 0.5.15 to 0.5.23).

    Eager attention binds the host list, or the device tensor where the host has none; extend and decode have
    operators that take the device tensor too. A graph binds the list that the runner hands over at replay, and the
    device tensor that the captured operators read.
    """
    if scenario.executor == "graph":
        return ("host_lengths", "seq_lens")
    if scenario.host_view == "absent":
        return ("seq_lens",)
    if scenario.mode in ("extend", "decode"):
        return ("seq_lens_cpu_int", "seq_lens")
    return ("seq_lens_cpu_int",)


def _kv_lengths_exact(scenario: MetadataScenario, index: int, batch: tuple[Request, ...], seen: Seen) -> Finding | None:
    expected = [row.kv_length for row in rows(scenario, batch)]
    for name in length_fields(scenario):
        actual = field(seen, name).tolist()
        if len(actual) < len(expected):
            message = f"{name} has {len(actual)} lengths for {len(expected)} requests [{where(scenario, index)}]"
            return finding("kv-lengths", name, "rows-missing", scenario, message, UNDER)
        for row, (got, right) in enumerate(zip(actual, expected, strict=False)):
            if got != right:
                message = f"{name}[{row}]={got}, but should be {right} [{where(scenario, index, row)}]"
                name_of_it = relation(got, right, scenario)
                meaning = OVER if got > right else UNDER
                return finding("kv-lengths", name, name_of_it, scenario, message, meaning)
    return None


def query_field(scenario: MetadataScenario) -> str:
    """The cumulative query lengths: a NumPy array of the host in extend, a device tensor elsewhere."""
    return "seq_lens_list_cumsum" if scenario.mode == "extend" else "actual_seq_lengths_q"


def _query_lengths(scenario: MetadataScenario, index: int, batch: tuple[Request, ...], seen: Seen) -> Finding | None:
    name = query_field(scenario)
    if name in seen.never_built:
        raise NothingToJudge
    expected = [row.query_end for row in rows(scenario, batch)]
    actual = field(seen, name).tolist()
    rows_built = scenario.bucket(len(batch))
    complete = len(actual) == rows_built and all(a < b for a, b in pairwise(actual))
    if complete and actual[: len(expected)] == expected:
        return None
    message = f"{name}={actual}, but should begin {expected}, increase and have {rows_built} rows"
    message += f" [{where(scenario, index)}]"
    meaning = "query rows are attributed to the wrong request, or the TND operator refuses the batch"
    return finding("query-lengths", name, "cumulative-wrong", scenario, message, meaning)


def _host_view(scenario: MetadataScenario, index: int, batch: tuple[Request, ...], seen: Seen) -> Finding | None:
    """Lengths follow one of the two views, and the table holds the pages of the lengths that are bound."""
    page = scenario.pool.page_size
    width = field(seen, "block_tables").shape[1]
    name = length_fields(scenario)[0]
    bound = field(seen, name, len(batch)).tolist()
    for row, (right, got) in enumerate(zip(rows(scenario, batch), bound, strict=False)):
        allowed = {right.kv_length, right.kv_length + right.request.host_lag}
        if got not in allowed:
            views = " or ".join(str(length) for length in sorted(allowed))
            message = f"{name}[{row}]={got}, but should be {views} [{where(scenario, index, row)}]"
            meaning = OVER if got > max(allowed) else UNDER
            relation_name = relation(got, right.kv_length + right.request.host_lag, scenario)
            return finding("host-view", name, relation_name, scenario, message, meaning)
        needed = -(-got // page)
        if needed > width:
            message = (
                f"block_tables has {width} columns, but {name}[{row}]={got} needs {needed} "
                f"[{where(scenario, index, row)}]"
            )
            meaning = "the operator reads past the table: an address out of range (error 507015) or another's pages"
            return finding("host-view", "block_tables", "too-narrow", scenario, message, meaning)
        if found := _wrong_page(scenario, index, row, right, got, seen):
            return found
    return None


def _wrong_page(scenario: MetadataScenario, index: int, row: int, right: Row, bound: int, seen: Seen) -> Finding | None:
    """Within the committed and drafted positions, the pages that a bound length reaches are the request's own."""
    table = field(seen, "block_tables", row + 1)[row].tolist()
    reach = -(-min(bound, right.kv_length) // scenario.pool.page_size)
    for column, page in enumerate(right.pages[:reach]):
        if table[column] != page:
            message = f"block_tables[{row}, {column}]={table[column]}, but should be {page}"
            message += f" [{where(scenario, index, row)}]"
            meaning = "attention reads another page than the request's: outputs are wrong"
            return finding("host-view", "block_tables", "page-wrong", scenario, message, meaning)
    return None


def _host_bound(scenario: MetadataScenario, index: int, batch: tuple[Request, ...], seen: Seen) -> Finding | None:
    name = length_fields(scenario)[0]
    bound = field(seen, name, len(batch)).tolist()
    for row, (right, got) in enumerate(zip(rows(scenario, batch), bound, strict=False)):
        if got != right.kv_length:
            message = f"{name}[{row}]={got}, but should be {right.kv_length} [{where(scenario, index, row)}]"
            too_long = got > right.kv_length
            relation_name = "bound-used-as-length" if too_long else "too-short"
            return finding("host-bound", name, relation_name, scenario, message, OVER if too_long else UNDER)
    return None


def _metadata(scenario: Scenario) -> bool:
    return isinstance(scenario, MetadataScenario)


def _exact_view(scenario: Scenario) -> bool:
    return isinstance(scenario, MetadataScenario) and not scenario.lagging and scenario.host_view != "bound"


CHECKS = (
    Check(
        "kv-lengths",
        "metadata",
        "Every length that an attention operator is bound to counts exactly the KV positions of its request.",
        _exact_view,
        each_round(_kv_lengths_exact),
    ),
    Check(
        "query-lengths",
        "metadata",
        "Cumulative query lengths give each request its own query rows, and increase.",
        _metadata,
        each_round(_query_lengths),
    ),
    Check(
        "host-view",
        "metadata",
        "With a host view ahead or behind, lengths follow one view and the table holds the pages they reach.",
        lambda scenario: isinstance(scenario, MetadataScenario) and scenario.lagging,
        each_round(_host_view),
    ),
    Check(
        "host-bound",
        "metadata",
        "A reserved upper bound published for the host is not used as an exact length.",
        lambda scenario: isinstance(scenario, MetadataScenario) and scenario.host_view == "bound",
        each_round(_host_bound),
        needs=ABSENT_HOST,
    ),
)
