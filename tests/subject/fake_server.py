"""A server with sglang's HTTP API and no model: it answers with numbers that follow from the prompt."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

INFO = {
    "version": "0.5.23",
    "device": "npu",
    "dtype": "bfloat16",
    "tp_size": 2,
    "disable_cuda_graph": True,
    "max_running_requests": 8,
    "random_seed": 7,
    "model_path": "Qwen3-8B",
    "speculative_algorithm": "DFLASH",
    "speculative_draft_model_path": "DFlash-b16",
    "speculative_num_draft_tokens": 4,
    "internal_states": [{"anything": None}],
}


class FakeServer:
    """What it answers may be changed: each attribute is a function of the request's body."""

    def __init__(self) -> None:
        self.info: dict[str, Any] | None = dict(INFO)
        self.info_path = "/server_info"
        self.generate: Callable[[dict[str, Any]], tuple[int, object]] = answer
        self.asked: list[dict[str, Any]] = []
        self.url = ""

    def respond(self, path: str, body: dict[str, Any]) -> tuple[int, object]:
        """Status and body of an answer."""
        if path == self.info_path and self.info is not None:
            return 200, self.info
        if path == "/health":
            return 200, {}
        if path == "/tokenize":
            return 200, {"tokens": list(body["prompt"].encode())}
        if path == "/generate":
            self.asked.append(body)
            return self.generate(body)
        return 404, {"detail": "Not Found"}


def answer(body: dict[str, Any]) -> tuple[int, object]:
    """Count up from the last token; three verifies to four tokens each, or one where two tokens are asked for."""
    prompt, new_tokens = body["input_ids"], body["sampling_params"]["max_new_tokens"]
    meta: dict[str, Any] = {"finish_reason": {"type": "length"}, "completion_tokens": new_tokens}
    if body.get("return_logprob"):
        start = body["logprob_start_len"]
        choices = (token + 1 for token in prompt[start:-1])
        meta["input_top_logprobs"] = [None, *([[-0.1, token, None], [-2.6, 0, None]] for token in choices)]
    elif new_tokens > 1:
        verifies = 1 if new_tokens == 2 else 3
        meta |= {
            "spec_verify_ct": verifies,
            "spec_num_correct_drafts": 3 * verifies,
            "spec_num_proposed_drafts": 3 * verifies,
            "spec_accept_length": new_tokens / verifies,
            "spec_correct_drafts_histogram": [0, 0, 0, verifies],
        }
    first = prompt[-1] + 1
    return 200, {"text": "", "output_ids": list(range(first, first + new_tokens)), "meta_info": meta}


@contextmanager
def serving(port: int = 0) -> Iterator[FakeServer]:
    """The server, on a port that is free or given, until the end of the block."""
    fake = FakeServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one write for an answer: two would wait for one another by 40 ms

        def do_GET(self) -> None:
            self._respond({})

        def do_POST(self) -> None:
            self._respond(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _respond(self, body: dict[str, Any]) -> None:
            status, told = fake.respond(self.path, body)
            if not status:  # hangs up without a word
                self.close_connection = True
                return
            data = told if isinstance(told, bytes) else json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        fake.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield fake
        finally:
            server.shutdown()
            thread.join()
