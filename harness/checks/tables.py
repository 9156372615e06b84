"""Block tables: every page that is read is the request's own, and padded rows read nothing that lives."""

from harness.checks.check import Check
from harness.checks.finding import Finding
from harness.checks.lengths import length_fields
from harness.checks.rounds import each_round, field
from harness.checks.wording import finding, where
from harness.reference.metadata import rows
from harness.scenario import MetadataScenario, Request, Scenario
from harness.scenario.metadata import PADDING_PAGE
from harness.scenario.observation import Seen

NARROW = "the operator reads past the table: an address out of range (error 507015) or another request's pages"
WRONG = "attention reads KV of another request or of nobody: outputs are wrong, acceptance falls"


def _block_table(scenario: MetadataScenario, index: int, batch: tuple[Request, ...], seen: Seen) -> Finding | None:
    table = field(seen, "block_tables")
    for row, right in enumerate(rows(scenario, batch)):
        if row >= table.shape[0]:
            message = f"block_tables has {table.shape[0]} rows for {len(batch)} requests [{where(scenario, index)}]"
            return finding("block-table", "block_tables", "rows-missing", scenario, message, NARROW)
        if table.shape[1] < len(right.pages):
            message = (
                f"block_tables has {table.shape[1]} columns, but {right.kv_length} positions need "
                f"{len(right.pages)} [{where(scenario, index, row)}]"
            )
            return finding("block-table", "block_tables", "too-narrow", scenario, message, NARROW)
        actual = table[row, : len(right.pages)].tolist()
        if actual != right.pages:
            column = next(k for k, page in enumerate(right.pages) if actual[k] != page)
            message = f"block_tables[{row}, {column}]={actual[column]}, but should be {right.pages[column]}"
            message += f" [{where(scenario, index, row)}]"
            return finding("block-table", "block_tables", "page-wrong", scenario, message, WRONG)
    return None


def _padded_rows(scenario: MetadataScenario, index: int, batch: tuple[Request, ...], seen: Seen) -> Finding | None:
    """A padded row may count positions (the operator wants some), but they all lie in the padding page."""
    table = field(seen, "block_tables")
    lengths = {name: field(seen, name).tolist() for name in length_fields(scenario)}
    bucket = scenario.bucket(len(batch))
    for name, size in {"block_tables": len(table), **{name: len(values) for name, values in lengths.items()}}.items():
        if size < bucket:
            message = f"{name} has {size} rows for a captured batch of {bucket} [{where(scenario, index)}]"
            return finding("padded-rows", name, "rows-missing", scenario, message, NARROW)
    for row in range(len(batch), bucket):
        if any(page != PADDING_PAGE for page in table[row].tolist()):
            pages = table[row].tolist()
            message = f"block_tables[{row}]={pages}, but a padded row should hold only page {PADDING_PAGE}"
            message += f" [{where(scenario, index)}]"
            return finding("padded-rows", "block_tables", "live-page", scenario, message, WRONG)
        for name, values in lengths.items():
            if not 0 <= values[row] <= scenario.draft_tokens + 1:
                message = f"{name}[{row}]={values[row]}, but a padded row should count at most its own queries"
                message += f" [{where(scenario, index)}]"
                meaning = "a padded row reads positions left over from the capture or from an earlier batch"
                return finding("padded-rows", name, "stale-length", scenario, message, meaning)
    return None


def _exact_view(scenario: Scenario) -> bool:
    return isinstance(scenario, MetadataScenario) and not scenario.lagging


def _has_padding(scenario: Scenario) -> bool:
    return isinstance(scenario, MetadataScenario) and any(
        scenario.bucket(len(batch)) > len(batch) for batch in scenario.rounds
    )


CHECKS = (
    Check(
        "block-table",
        "metadata",
        "The block table names the page of every position that is read, and is wide enough.",
        _exact_view,
        each_round(_block_table),
    ),
    Check(
        "padded-rows",
        "metadata",
        "Rows that pad a graph bucket read nothing but the padding page.",
        _has_padding,
        each_round(_padded_rows),
    ),
)
