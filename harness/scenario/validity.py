"""Which scenarios make sense: the rules that the strategies keep, for scenarios that come from a file."""

from math import isfinite

from harness.scenario import Scenario
from harness.scenario.gate import GateScenario
from harness.scenario.metadata import HEAD_SIZE, Algorithm, Attention, Executor, MetadataScenario, Mode, Request, Target
from harness.scenario.session import CONTEXT_LENGTH, SessionScenario, Visit
from harness.scenario.session_strategies import ALGORITHMS, OTHER_DRAFTS
from harness.scenario.verify import VerifyRequest, VerifyScenario

#: Modes that an algorithm has. `NONE` is a server without speculative decoding.
MODES: dict[Algorithm, tuple[Mode, ...]] = {
    "NONE": ("extend", "decode"),
    "EAGLE": ("target_verify", "draft_decode", "draft_extend"),
    "EAGLE3": ("target_verify", "draft_decode", "draft_extend"),
    "STANDALONE": ("target_verify", "draft_decode", "draft_extend"),
    "NGRAM": ("target_verify",),
    "DFLASH": ("target_verify", "draft_block"),
    "DSPARK": ("target_verify", "draft_block"),
}
#: Modes of a target with linear attention. Its drafts have full attention alone, and a backend without the wrapper.
WRAPPED_MODES: tuple[Mode, ...] = ("extend", "decode", "target_verify")
MAX_REQUESTS = 64
MAX_DRAFT_TOKENS = 32
MAX_POSITIONS = 1 << 20
MAX_VOCABULARY = 64
MAX_LOGIT = 1000
MAX_DRAWS = 4096
MAX_SEED = (1 << 31) - 1
#: Algorithms that verify trees; the others draft one token after the other.
VERIFY_TREES = ("EAGLE", "NGRAM")
#: What the operators of MLA take (documentation of torch_npu 2.14.0).
LATENT_PAGE_SIZES = (16, 128)
NZ_PAGE_SIZE = 128
MOST_LATENT_QUERIES = 16
#: Of heads, in numbers: what every operator takes.
LARGEST_HEAD, SIZES_ALIGNED = 256, 16


def why_invalid(scenario: Scenario) -> str:
    """The first rule that `scenario` breaks, as a clause, or an empty string."""
    if isinstance(scenario, VerifyScenario):
        return _why_invalid_verify(scenario)
    if isinstance(scenario, GateScenario):
        return ""
    if isinstance(scenario, SessionScenario):
        return _why_invalid_session(scenario)
    pool = scenario.pool
    rules: list[tuple[bool, str]] = [
        (scenario.mode in MODES[scenario.algorithm], f"{scenario.algorithm} has no mode {scenario.mode}"),
        (1 <= scenario.draft_tokens <= MAX_DRAFT_TOKENS, f"draft_tokens={scenario.draft_tokens} is not in 1 to 32"),
        (pool.page_size >= 1 and pool.context_length >= 1, "page_size and context_length must be positive"),
        (1 <= pool.rows <= MAX_REQUESTS, f"pool.rows={pool.rows} is not in 1 to {MAX_REQUESTS}"),
        (pool.rows * scenario.capacity <= MAX_POSITIONS, f"the pool holds more than {MAX_POSITIONS} positions"),
        (1 <= pool.page_stride <= MAX_POSITIONS, f"page_stride={pool.page_stride} is not in 1 to {MAX_POSITIONS}"),
        (0 <= pool.page_offset <= MAX_POSITIONS, f"page_offset={pool.page_offset} is not in 0 to {MAX_POSITIONS}"),
        (0 <= pool.shared_pages <= MAX_POSITIONS, f"shared_pages={pool.shared_pages} is not in 0 to {MAX_POSITIONS}"),
        (0 <= scenario.step < scenario.draft_tokens, f"step={scenario.step} is not below draft_tokens"),
        (scenario.step == 0 or scenario.mode == "draft_decode", "only draft_decode has steps"),
        ((scenario.window > 0) == (scenario.target == "swa"), "window goes with the target swa, and only with it"),
        (scenario.executor == "eager" or bool(scenario.buckets), "a graph needs captured buckets"),
        (scenario.executor == "eager" or scenario.mode != "extend", "an extend is never captured"),
        (all(0 < bucket <= MAX_REQUESTS for bucket in scenario.buckets), "a bucket is not in 1 to 64"),
        (1 <= scenario.builds <= 4, f"builds={scenario.builds} is not in 1 to 4"),
        (bool(scenario.rounds), "it has no rounds"),
        *(_attention_rules(scenario, scenario.attention) if scenario.attention is not None else ()),
        (scenario.host_view != "bound" or scenario.algorithm == "DFLASH", "only DFlash publishes a reserved bound"),
        (
            scenario.mode != "draft_decode" or scenario.draft_tokens >= 3,
            "a draft decode needs draft_tokens of 3 or more",
        ),
        (scenario.mode != "draft_decode" or scenario.step <= scenario.draft_tokens - 3, "that step gets no metadata"),
        (scenario.target != "gdn" or scenario.mode in WRAPPED_MODES, f"the drafts of gdn have no mode {scenario.mode}"),
        (scenario.target != "gdn" or scenario.host_view == "published", "linear attention has host lengths published"),
        (scenario.target != "gdn" or scenario.attention is None, "attention does not run with the target gdn yet"),
        (scenario.host_view == "published" or not scenario.lagging, "only published host lengths can lag"),
        (scenario.mode not in ("extend", "decode", "draft_extend") or not scenario.lagging, "that mode cannot lag"),
    ]
    problem = next((sentence for holds, sentence in rules if not holds), "")
    return problem or next((p for batch in scenario.rounds if (p := _why_invalid_batch(scenario, batch))), "")


def least_prefix(target: Target, mode: Mode) -> int:
    """The smallest prefix: a verify comes after a prefill, and the linear backend relies on it.

    It counts the rows whose host length is 0 as padding (`_replay_metadata`, 0.5.15 to 0.5.23).
    """
    return 1 if target == "gdn" and mode == "target_verify" else 0


def takes_sizes(attention: Attention, sizes: tuple[int, int]) -> bool:
    """Whether the operators of `attention` take heads whose keys and values have `sizes`.

    Beside sinks, fused attention is documented for values of up to 128 (torch_npu 2.14.0), and the kernels that do
    without have one size for both.
    """
    size, value_size = sizes
    if attention.sinks and not (value_size <= HEAD_SIZE and (attention.fia or size == value_size)):
        return False
    aligned = size % SIZES_ALIGNED == 0 and value_size % SIZES_ALIGNED == 0
    return aligned and 0 < value_size <= size <= LARGEST_HEAD and (size == value_size or sizes == (192, 128))


def pads(mode: Mode, executor: Executor, target: Target, fia: bool) -> bool:
    """Whether a batch may be padded as data parallelism pads it, before its metadata is built.

    The metadata of drafts is built before that, and graphs have buckets (read: `prepare_mlp_sync_batch` and
    `ModelRunner.forward`, 0.5.15 to 0.5.23). Without FIA, an extend hands padding on to operators of which nothing is
    documented.
    """
    if executor != "eager":
        return False
    return mode in ("decode", "target_verify") or (mode == "extend" and (fia or target == "mla"))


def _attention_rules(scenario: MetadataScenario, attention: Attention) -> list[tuple[bool, str]]:
    """What must hold where attention runs; of MLA, what its operators are documented to take."""
    page = scenario.pool.page_size
    exact = scenario.host_view == "published" and not scenario.lagging
    sizes = (attention.head_size, attention.value_size)
    grouped = 1 <= attention.kv_heads <= attention.query_heads <= 16
    whole = all(request.prefix % page == 0 for batch in scenario.rounds for request in batch)
    rules = [
        (exact, "attention runs on exact lengths"),
        (grouped and attention.query_heads % attention.kv_heads == 0, "heads must form groups, and be at most 16"),
        (isfinite(attention.fill), "the fill must be finite"),
        (0 <= attention.padding <= MAX_REQUESTS, f"padding={attention.padding} is not in 0 to {MAX_REQUESTS}"),
        (
            not attention.padding or pads(scenario.mode, scenario.executor, scenario.target, attention.fia),
            "such a batch is not padded",
        ),
        (takes_sizes(attention, sizes), "the operators take no heads of that size"),
        (scenario.target == "swa" or not attention.sinks, "sinks go with the target swa"),
        (scenario.target == "mla" or not attention.nz, "the layout NZ goes with the target mla"),
        (page == NZ_PAGE_SIZE or not attention.nz, f"caches in the layout NZ have pages of {NZ_PAGE_SIZE}"),
        (
            scenario.target != "swa" or scenario.window >= 2,
            "a window layer sees 2 positions or more: sglang's 0 is none",
        ),
    ]
    if scenario.target == "mla":
        rules += [
            (attention.kv_heads == 1, "MLA has one KV head"),
            (sizes == (HEAD_SIZE, HEAD_SIZE), "MLA has heads of 128"),
            (page in LATENT_PAGE_SIZES, f"MLA runs with pages of {LATENT_PAGE_SIZES}"),
            (scenario.draft_tokens <= MOST_LATENT_QUERIES, f"MLA runs with at most {MOST_LATENT_QUERIES} draft tokens"),
            (scenario.mode != "extend" or whole, "an MLA extend starts at a page end: a cached prefix is whole pages"),
        ]
    return rules


def _why_invalid_batch(scenario: MetadataScenario, batch: tuple[Request, ...]) -> str:
    if not batch and scenario.executor == "eager":
        return "an eager batch without requests is never built (sglang skips it)"
    if scenario.executor == "graph" and len(batch) > max(scenario.buckets):
        return f"a batch of {len(batch)} fits no captured bucket"
    if len({request.row for request in batch}) != len(batch):
        return "two requests of one batch share a row"
    for request in batch:
        if not 1 <= request.row <= scenario.pool.rows:
            return f"row {request.row} is not in 1 to {scenario.pool.rows}"
        if not 0 <= request.prefix <= scenario.pool.context_length:
            return f"prefix {request.prefix} is not in 0 to the context length {scenario.pool.context_length}"
        if not 0 <= request.new_tokens <= scenario.pool.context_length - request.prefix + scenario.draft_tokens:
            return f"new_tokens={request.new_tokens} goes past the context"
        if scenario.mode in ("extend", "draft_extend") and request.new_tokens < 1:
            return f"{scenario.mode} needs new_tokens of 1 or more"
        if scenario.mode == "draft_extend" and request.new_tokens > scenario.draft_tokens:
            return f"new_tokens={request.new_tokens} is more than the draft tokens that could be accepted"
        if not 0 <= request.prefix + request.host_lag <= scenario.pool.context_length:
            return f"host_lag={request.host_lag} puts the host's prefix outside the context"
        if request.prefix + request.host_lag < least_prefix(scenario.target, scenario.mode):
            return "a verify of linear attention has a prefix, for the host too: a host length of 0 marks padding there"
    return ""


def _why_invalid_verify(scenario: VerifyScenario) -> str:
    """The first rule that a verify breaks; its own lengths are asked for once there is a request."""
    if not 1 <= len(scenario.requests) <= MAX_REQUESTS:
        return f"a verify has 1 to {MAX_REQUESTS} requests"
    if not (scenario.requests[0].tokens and scenario.requests[0].logits):
        return "a request needs a token to verify, and logits after it"
    rules: list[tuple[bool, str]] = [
        (scenario.block <= MAX_DRAFT_TOKENS, f"a request has more than {MAX_DRAFT_TOKENS} tokens"),
        (scenario.block > 1 or scenario.algorithm != "DSPARK", "DSPARK drafts a token or more"),
        (2 <= scenario.vocabulary <= MAX_VOCABULARY, f"a vocabulary has 2 to {MAX_VOCABULARY} tokens"),
        (1 <= scenario.draws <= MAX_DRAWS, f"draws={scenario.draws} is not in 1 to {MAX_DRAWS}"),
        (0 <= scenario.seed <= MAX_SEED, f"seed={scenario.seed} is not in 0 to {MAX_SEED}"),
        (scenario.shape == "chain" or scenario.algorithm in VERIFY_TREES, f"{scenario.algorithm} verifies no trees"),
    ]
    problem = next((sentence for holds, sentence in rules if not holds), "")
    return problem or next((p for request in scenario.requests if (p := _why_invalid_request(scenario, request))), "")


def _why_invalid_request(scenario: VerifyScenario, request: VerifyRequest) -> str:
    block, tokens = scenario.block, range(scenario.vocabulary)
    trees = all(0 <= parent < child for child, parent in enumerate(request.parents, start=1))
    families = [[request.tokens[child] for child in request.children(node)] for node in range(block) if trees]
    named = [token for row in request.allowed for token in row]
    rules: list[tuple[bool, str]] = [
        (len(request.tokens) == block, "all requests of a verify have as many tokens"),
        (len(request.logits) == block, "there are logits after each token"),
        (all(len(row) == len(tokens) for row in request.logits), "each row has a logit for each token"),
        (all(abs(value) <= MAX_LOGIT for row in request.logits for value in row), f"a logit is beyond {MAX_LOGIT}"),
        (all(token in tokens for token in (*request.tokens, *named)), "a token is not in the vocabulary"),
        (len(request.parents) in (0, block - 1) and trees, "each drafted token follows an earlier one"),
        (all(len(family) == len(set(family)) for family in families), "two siblings are the same token"),
        (len(request.allowed) in (0, block) and all(request.allowed), "a grammar allows a token after each"),
        (
            len(request.draft_logits) == (block - 1 if scenario.algorithm == "DSPARK" and scenario.sampled else 0),
            "a sampled verify of DSPARK has the draft's logits for each node but the last, and no other has any",
        ),
        (all(len(row) == len(tokens) for row in request.draft_logits), "a row of draft logits has another length"),
        (all(abs(x) <= MAX_LOGIT for row in request.draft_logits for x in row), f"a logit is beyond {MAX_LOGIT}"),
        (0 <= request.temperature <= 100, f"temperature={request.temperature} is not in 0 to 100"),
        (0 <= request.top_k <= MAX_VOCABULARY, f"top_k={request.top_k} is not in 0 to {MAX_VOCABULARY}"),
        (0 < request.top_p <= 1, f"top_p={request.top_p} is not above 0 and up to 1"),
    ]
    return next((sentence for holds, sentence in rules if not holds), "")


def _why_invalid_session(scenario: SessionScenario) -> str:
    named = [name for name, _ in (*scenario.options, *scenario.environment)]
    context = dict(scenario.options).get("context_length", CONTEXT_LENGTH)
    if scenario.algorithm not in ALGORITHMS:
        return f"there is no draft for {scenario.algorithm}: the algorithms of sessions are {', '.join(ALGORITHMS)}"
    if scenario.draft and (scenario.algorithm, scenario.draft) not in OTHER_DRAFTS:
        return f"{scenario.algorithm} has no draft model {scenario.draft}"
    if repeated := next((name for name in named if named.count(name) > 1), ""):
        return f"{repeated} is named twice"
    if type(context) is not int or not 1 <= context <= MAX_POSITIONS:
        return f"context_length={context} is not in 1 to {MAX_POSITIONS}"
    if scenario.streams == "late" and scenario.subject == "engine":
        return "streams are held back for workers alone"
    if not isfinite(scenario.fill):
        return "the fill must be finite"
    if scenario.gate_lifted and scenario.algorithm != "DFLASH":
        return f"{scenario.algorithm} has no device gate to lift"
    if not 1 <= len(scenario.visits) <= MAX_REQUESTS:
        return f"it has {len(scenario.visits)} visits, and not 1 to {MAX_REQUESTS}"
    return next((problem for visit in scenario.visits if (problem := _why_invalid_visit(visit, context))), "")


#: Tokens that a text may have: those of the session's models beyond them mean something else.
BYTES = 256


def _why_invalid_visit(visit: Visit, context: int) -> str:
    if not 1 <= visit.length <= context - 3:
        return f"length={visit.length} is not in 1 to {context - 3}: sglang keeps two positions of the context free"
    if not 1 <= visit.new_tokens <= context:
        return f"new_tokens={visit.new_tokens} is not in 1 to the context length {context}"
    if not 0 <= visit.own <= visit.length:
        return f"own={visit.own} is not in 0 to the length {visit.length}"
    if visit.given and (len(visit.given) != visit.length or not 0 <= min(visit.given) <= max(visit.given) < BYTES):
        return f"it is given {len(visit.given)} tokens, and not {visit.length} bytes"
    if visit.arrives < 0:
        return f"arrives={visit.arrives} is no turn"
    if visit.aborted and visit.aborted <= visit.arrives:
        return f"it is aborted at turn {visit.aborted}, and arrives at turn {visit.arrives}"
    if visit.temperature < 0:
        return f"temperature={visit.temperature} is below 0"
    return ""
