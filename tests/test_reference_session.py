"""The reference of sessions: worked examples by hand guard its lengths, and a second way of working its answers."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import torch as torch_file
from safetensors.numpy import save_file

from harness.models.prompts import prompt
from harness.reference.checkpoint import Checkpoint
from harness.reference.session import (
    answer,
    answer_length,
    increments,
    kv_lengths,
    published,
    target,
    tokens_of_extends,
)
from harness.reference.transformer import Greedy, Transformer, greedy
from harness.scenario.observation import Forward
from harness.scenario.session import SessionScenario, Visit

DFLASH = SessionScenario("DFLASH", (Visit(5, 4), Visit(130, 4)))
EAGLE = SessionScenario("EAGLE", DFLASH.visits)


def forward(mode: str, *device: int, block: int = 0) -> Forward:
    """A forward of as many visits as there are device lengths."""
    return Forward(1, False, mode, tuple(range(len(device))), device, block=block)


@pytest.mark.parametrize(
    ("seen", "step", "right"),
    [
        (forward("extend", 5, 130), 0, (5, 130)),  # the device has the new tokens already
        (forward("mixed", 5, 131), 0, (5, 131)),
        (forward("decode", 6, 131), 0, (6, 131)),
        (forward("target_verify", 5, 130, block=16), 0, (21, 146)),
        (forward("draft_block", 5, 130, block=16), 0, (21, 146)),
        (forward("draft_decode", 5, 130, block=4), 0, (6, 131)),
        (forward("draft_decode", 5, 130, block=4), 2, (8, 133)),
        (forward("draft_extend", 9, 134, block=4), 0, (9, 134)),
    ],
    ids=str,
)
def test_attention_is_told_of_what_there_is(seen: Forward, step: int, right: tuple[int, ...]) -> None:
    assert right == kv_lengths(seen, step)


@pytest.mark.parametrize(
    ("scenario", "mode", "right"),
    [
        (DFLASH, "target_verify", (21, 146)),
        (DFLASH, "draft_block", (21, 146)),
        (DFLASH, "extend", (5, 130)),
        (EAGLE, "target_verify", (5, 130)),
        (EAGLE, "draft_decode", (5, 130)),
        (EAGLE, "draft_extend", (5, 130)),
        (EAGLE, "extend", (5, 130)),
    ],
)
def test_only_workers_of_the_dflash_family_publish_the_block(
    scenario: SessionScenario, mode: str, right: tuple[int, ...]
) -> None:
    assert right == published(scenario, forward(mode, 5, 130, block=16))


def verify(*visits: tuple[int, int]) -> Forward:
    """A verify of visits, each with its committed prefix."""
    return Forward(
        1, False, "target_verify", tuple(visit for visit, _ in visits), tuple(length for _, length in visits)
    )


EXTEND = Forward(1, False, "extend", (0,), (5,), new_tokens=(5,))


@pytest.mark.parametrize(
    ("forwards", "right"),
    [
        ([], []),
        ([EXTEND], []),
        ([EXTEND, verify((0, 5))], [[]]),
        ([EXTEND, verify((0, 5)), verify((0, 8)), verify((0, 9))], [[3, 1]]),
        ([EXTEND, verify((1, 130), (0, 5)), verify((1, 131)), verify((0, 9), (1, 135))], [[4]]),
        # It is retracted after two verifies, and extended anew.
        ([EXTEND, verify((0, 5)), verify((0, 8)), EXTEND, verify((0, 9)), verify((0, 11))], [[3], [2]]),
        ([verify((1, 5)), verify((1, 6))], []),
        # A draft is about the same prefix as its verify.
        ([EXTEND, verify((0, 5)), Forward(1, True, "draft_block", (0,), (7,)), verify((0, 9))], [[4]]),
    ],
)
def test_a_prefix_moves_on_from_verify_to_verify_and_an_extend_begins_anew(
    forwards: list[Forward], right: list[list[int]]
) -> None:
    assert right == increments(forwards, 0)


@pytest.mark.parametrize(
    ("options", "length", "right"), [((), 5, 20), ((), 1010, 12), ((("context_length", 256),), 240, 14)]
)
def test_an_answer_ends_two_positions_before_the_context(
    options: tuple[tuple[str, int], ...], length: int, right: int
) -> None:
    assert right == answer_length(SessionScenario("NONE", (Visit(length, 20),), options=options), 0)


@pytest.mark.parametrize(
    ("forwards", "right"),
    [
        ([EXTEND], 1),
        ([EXTEND, verify((0, 5)), verify((0, 7))], 1),
        ([EXTEND, verify((0, 5)), Forward(3, False, "extend", (0,), (7,), new_tokens=(7,))], 2),  # retracted
        ([Forward(1, False, "extend", (0,), (3,), new_tokens=(3,)), EXTEND], 1),  # in two chunks
        ([EXTEND, Forward(2, False, "mixed", (1, 0), (8, 6), new_tokens=(8, 1))], 2),
        ([Forward(1, True, "extend", (0,), (5,), new_tokens=(5,))], 0),
        ([Forward(1, False, "extend", (1,), (9,), new_tokens=(9,))], 0),
    ],
)
def test_an_extend_to_the_end_of_what_there_is_gives_one_token(forwards: list[Forward], right: int) -> None:
    assert right == tokens_of_extends(DFLASH, forwards, 0)


def test_an_answer_is_the_targets_own() -> None:
    assert answer(DFLASH, 1) == greedy(target(DFLASH), tuple(prompt(DFLASH.visits[1], 1)), 4)


def test_a_session_begins_with_the_tokens_of_a_shorter_one() -> None:
    longer = answer(SessionScenario("NONE", (Visit(5, 9),)), 0)

    assert answer(DFLASH, 0) == Greedy(longer.tokens[:4], longer.gaps[:4])


SIZES = {
    "model_type": "qwen3",
    "vocab_size": 11,
    "hidden_size": 6,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "intermediate_size": 5,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}


@pytest.fixture(scope="module", params=[False, True], ids=["head", "tied"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of a few hundred numbers; its embeddings are its head, too, or not."""
    numbers = np.random.default_rng(7)
    attention = {
        "q_proj": (16, 6),
        "k_proj": (8, 6),
        "v_proj": (8, 6),
        "o_proj": (6, 16),
        "q_norm": (4,),
        "k_norm": (4,),
    }
    mlp = {"gate_proj": (5, 6), "up_proj": (5, 6), "down_proj": (6, 5)}
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (11, 6), "model.norm": (6,)}
    for layer in range(2):
        shapes |= {f"model.layers.{layer}.self_attn.{name}": shape for name, shape in attention.items()}
        shapes |= {f"model.layers.{layer}.mlp.{name}": shape for name, shape in mlp.items()}
        shapes |= {f"model.layers.{layer}.{name}": (6,) for name in ("input_layernorm", "post_attention_layernorm")}
    if not request.param:
        shapes["lm_head"] = (11, 6)
    folder = tmp_path_factory.mktemp("model")
    weights = {f"{name}.weight": numbers.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(SIZES | {"tie_word_embeddings": request.param}))
    return folder


def by_hand(folder: Path, tokens: list[int]) -> list[float]:
    """The logits after `tokens`, in plain Python and number by number: no cache, no array but the weights."""
    weights = Checkpoint(folder).weights

    def times(name: str, vector: list[float]) -> list[float]:
        return [
            math.fsum(w * x for w, x in zip(row, vector, strict=True)) for row in weights[f"{name}.weight"].tolist()
        ]

    def norm(name: str, vector: list[float]) -> list[float]:
        scale = math.sqrt(math.fsum(x * x for x in vector) / len(vector) + 1e-6)
        return [x / scale * w for x, w in zip(vector, weights[f"{name}.weight"].tolist(), strict=True)]

    def head(vector: list[float], number: int) -> list[float]:
        return vector[4 * number : 4 * number + 4]

    def turned(vector: list[float], position: int) -> list[float]:
        """Numbers k and k + 2 of a head are a point of the plane, turned by position / 10000^(k / 2)."""
        result = [0.0] * 4
        for k in (0, 1):
            angle = position / 10000.0 ** (k / 2)
            cosine, sine = math.cos(angle), math.sin(angle)
            result[k] = vector[k] * cosine - vector[k + 2] * sine
            result[k + 2] = vector[k + 2] * cosine + vector[k] * sine
        return result

    streams = [weights["model.embed_tokens.weight"][token].tolist() for token in tokens]
    for layer in (f"model.layers.{number}." for number in (0, 1)):
        attention = f"{layer}self_attn."
        normed = [norm(f"{layer}input_layernorm", stream) for stream in streams]
        mixed = []
        for here, own in enumerate(normed):
            together: list[float] = []
            for number in range(4):
                query = turned(norm(f"{attention}q_norm", head(times(f"{attention}q_proj", own), number)), here)
                scores, values = [], []
                for there in range(here + 1):
                    key = norm(f"{attention}k_norm", head(times(f"{attention}k_proj", normed[there]), number // 2))
                    pairs = zip(query, turned(key, there), strict=True)
                    scores.append(math.exp(math.fsum(q * k for q, k in pairs) / 2.0))
                    values.append(head(times(f"{attention}v_proj", normed[there]), number // 2))
                total = math.fsum(scores)
                together += [
                    math.fsum(score * value[k] for score, value in zip(scores, values, strict=True)) / total
                    for k in range(4)
                ]
            mixed.append(times(f"{attention}o_proj", together))
        for place, stream in enumerate(streams):
            attended = [x + y for x, y in zip(stream, mixed[place], strict=True)]
            inner = norm(f"{layer}post_attention_layernorm", attended)
            gates, ups = times(f"{layer}mlp.gate_proj", inner), times(f"{layer}mlp.up_proj", inner)
            opened = [gate / (1 + math.exp(-gate)) * up for gate, up in zip(gates, ups, strict=True)]
            down = times(f"{layer}mlp.down_proj", opened)
            streams[place] = [x + y for x, y in zip(attended, down, strict=True)]
    last = norm("model.norm", streams[-1])
    return times("lm_head" if "lm_head.weight" in weights else "model.embed_tokens", last)


@pytest.mark.parametrize("given", [(3,), (3, 1, 4, 1, 5), (10, 0, 10, 0, 10, 0, 10)])
def test_the_transformer_generates_what_is_worked_out_number_by_number(model: Path, given: tuple[int, ...]) -> None:
    got = Transformer(model).greedy(given, 5)
    for place, (token, gap) in enumerate(zip(got.tokens, got.gaps, strict=True)):
        logits = by_hand(model, [*given, *got.tokens[:place]])
        second, first = sorted(logits)[-2:]

        assert token == logits.index(first)
        assert gap == pytest.approx(first - second, rel=1e-9, abs=1e-12)


def test_a_token_after_the_other_is_all_at_once(model: Path) -> None:
    """With a cache the model says the same as without: every token is what the whole text before it gives."""
    given, got = (3, 1, 4), Transformer(model).greedy((3, 1, 4), 6)
    again = [Transformer(model).greedy((*given, *got.tokens[:place]), 1) for place in range(6)]

    assert got.tokens == tuple(one.tokens[0] for one in again)
    assert got.gaps == pytest.approx([one.gaps[0] for one in again], rel=1e-9)


def test_a_model_that_is_made_to_follow_a_text_says_what_it_would_have_generated(model: Path) -> None:
    given, other = (3, 1, 4), (2, 2, 0, 1)
    got = Transformer(model).forced(given, other)
    alone = [Transformer(model).greedy((*given, *other[:place]), 1) for place in range(4)]

    assert got.tokens == tuple(one.tokens[0] for one in alone)
    assert got.gaps == pytest.approx([one.gaps[0] for one in alone])


def test_of_equal_logits_the_first_token_wins(model: Path, tmp_path: Path) -> None:
    weights = {name: np.zeros_like(value, dtype=np.float32) for name, value in Checkpoint(model).weights.items()}
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((model / "config.json").read_text())

    assert Transformer(tmp_path).greedy((3,), 2) == Greedy((0, 0), (0.0, 0.0))


def test_where_theta_is_among_the_parameters_of_the_rotation_it_is_read_there(model: Path, tmp_path: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    config["rope_parameters"] = {"rope_theta": config.pop("rope_theta")}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes())

    assert Transformer(tmp_path).greedy((3, 1), 3) == Transformer(model).greedy((3, 1), 3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_weights_are_read_as_they_are_whatever_their_type(dtype: torch.dtype, tmp_path: Path) -> None:
    numbers = torch.tensor([[0.0, -0.0, 1.0], [-2.5, 3e4, 2.0**-14]], dtype=dtype)
    torch_file.save_file({"a.weight": numbers}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(SIZES))

    read = Checkpoint(tmp_path).weights["a.weight"]
    assert read.dtype == np.float64
    assert np.array_equal(read, numbers.double().numpy())
