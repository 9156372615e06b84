"""sglang's HTTP API, as far as acceptance needs it: `/server_info`, `/tokenize` and `/generate`.

Read in 0.5.15 to 0.5.23; fields that a server does not send are missed where they are needed, by name.
"""

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

import httpx
import msgspec

from harness.errors import CannotJudge, HarnessError, UsageError

#: A connection that breaks is tried again after so many seconds; an answer that is late or an error never is.
PAUSES = (0.5, 2.0)
_BROKEN = (httpx.ConnectError, httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)


Told = TypeVar("Told")


class ServerGone(HarnessError):
    """Nobody answers, or nobody any more: what was answered is kept, and the rest is missing."""


class ServerInfo(msgspec.Struct, frozen=True):
    """What a server says of itself, under sglang's own names."""

    version: str = "unknown"
    device: str = "unknown"
    dtype: str = "unknown"
    tp_size: int = 1
    disable_cuda_graph: bool = False
    max_running_requests: int | None = None
    random_seed: int = 0
    model_path: str = ""
    speculative_algorithm: str | None = None
    speculative_draft_model_path: str | None = None
    speculative_num_draft_tokens: int | None = None


class Counts(msgspec.Struct, frozen=True):
    """`meta_info` of an answer. sglang leaves the counts of speculation out where nothing was verified."""

    finish_reason: Mapping[str, object] | None = None
    completion_tokens: int = 0
    spec_verify_ct: int | None = None
    spec_num_correct_drafts: int | None = None
    spec_num_proposed_drafts: int | None = None
    spec_accept_length: float = 0.0
    spec_correct_drafts_histogram: tuple[int, ...] | None = None
    input_top_logprobs: Sequence[Sequence[tuple[float, int, str | None]] | None] = ()


class Generated(msgspec.Struct, frozen=True):
    """An answer of `/generate`."""

    meta_info: Counts
    output_ids: tuple[int, ...] | None = None


class _Tokens(msgspec.Struct, frozen=True):
    tokens: tuple[int, ...]


class Server:
    """A server at `url`; `patience` is the longest that an answer may take, in seconds. A context manager."""

    def __init__(self, url: str, patience: float, connections: int = 1) -> None:
        self.url = url.rstrip("/")
        limits = httpx.Limits(max_connections=connections)
        try:
            self._client = httpx.Client(base_url=self.url, timeout=httpx.Timeout(patience, pool=None), limits=limits)
            valid = self._client.base_url.scheme in ("http", "https") and self._client.base_url.host
        except httpx.InvalidURL:
            valid = False
        if not valid:
            raise UsageError(f"{url!r} is no address of a server: write http://HOST:PORT.")
        self.patience = patience

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def info(self) -> ServerInfo:
        """What the server runs; older releases have only the second path. Raises as `_ask` does."""
        for path in ("/server_info", "/get_server_info"):
            answer = self._ask("GET", path)
            if answer.status_code != httpx.codes.NOT_FOUND:
                return self._read(answer, ServerInfo)
        raise UsageError(f"{self.url} is no sglang server: it has neither /server_info nor /get_server_info.")

    def tokenize(self, text: str) -> tuple[int, ...]:
        """The tokens that `/generate` would make of a text, without any template. Raises as `_ask` does."""
        answer = self._ask("POST", "/tokenize", {"prompt": text, "model": "default"})
        return self._read(answer, _Tokens).tokens

    def generate(self, tokens: Sequence[int], new_tokens: int, ignore_eos: bool = False) -> Generated:
        """Greedily continue `tokens`. Raises as `_ask` does."""
        sampling = {"temperature": 0, "max_new_tokens": new_tokens, "ignore_eos": ignore_eos}
        answer = self._ask("POST", "/generate", {"input_ids": list(tokens), "sampling_params": sampling})
        return self._read(answer, Generated)

    def score(self, prompt: Sequence[int], answer: Sequence[int]) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """The target along `answer`, without any draft: its choice at each place, and its lead over the next in nats.

        It is a prefill of prompt and answer. Raises as `_ask` does, and `UsageError` where the server refuses.
        """
        asked = {
            "input_ids": [*prompt, *answer],
            "sampling_params": {"temperature": 0, "max_new_tokens": 1},
            "return_logprob": True,
            "logprob_start_len": len(prompt) - 1,
            "top_logprobs_num": 2,
        }
        # The first place has nothing before it, and no log-probabilities.
        tops = self._read(self._ask("POST", "/generate", asked), Generated).meta_info.input_top_logprobs[1:]
        if len(tops) != len(answer) or any(top is None or len(top) < 2 for top in tops):
            raise CannotJudge(f"{self.url} scored {len(tops)} of {len(answer)} tokens.")
        pairs = [top[:2] for top in tops if top is not None]
        return tuple(first[1] for first, _ in pairs), tuple(first[0] - second[0] for first, second in pairs)

    def _ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        """Ask, and once more after each pause where the connection breaks; every question may be put twice.

        Raises:
            ServerGone: there is nobody, or nobody any more.
            CannotJudge: no answer in time, or an error of the server's own.
            UsageError: the server refuses what it is asked.
        """
        for pause in (*PAUSES, None):
            try:
                answer = self._client.request(method, path, json=body)
                break
            except httpx.TimeoutException:
                raise CannotJudge(
                    f"{self.url}{path} gave no answer in {self.patience:g} s: raise --patience, or lower --concurrency."
                ) from None
            except _BROKEN as error:
                if pause is None:
                    raise ServerGone(f"nobody answers at {self.url} ({_cause(error)}).") from None
                time.sleep(pause)
            except httpx.RequestError as error:
                raise CannotJudge(f"{self.url}{path} cannot be asked: {error}.") from None
        if answer.is_server_error:
            raise CannotJudge(f"{self.url}{path} failed with status {answer.status_code}: {_words(answer)}")
        if answer.is_client_error and answer.status_code != httpx.codes.NOT_FOUND:
            raise UsageError(f"{self.url}{path} refuses with status {answer.status_code}: {_words(answer)}")
        return answer

    def _read(self, answer: httpx.Response, kind: type[Told]) -> Told:
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except msgspec.DecodeError as error:
            raise UsageError(f"{answer.url} answers as no sglang server does: {error}.") from None


def _cause(error: httpx.RequestError) -> str:
    return str(error).removeprefix("[Errno 111] ").lower() or "the connection broke"


def _words(answer: httpx.Response) -> str:
    """What an error says, on one line."""
    return " ".join(answer.text.split())[:300] or answer.reason_phrase
