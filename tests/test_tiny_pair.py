"""The trained pair in `fixtures/tiny_pair/`, in plain torch: no sglang, no emulation, no training."""

import copy
import json
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from safetensors import safe_open

from fixtures.make_tiny_pair import corpus, measure
from fixtures.make_tiny_pair.__main__ import pieces
from fixtures.make_tiny_pair.checkpoint import CONFIGURATIONS, Pair, read
from fixtures.make_tiny_pair.measure import Continued
from fixtures.make_tiny_pair.prompts import made_up

FOLDER = Path(__file__).parents[1] / "fixtures" / "tiny_pair"
Model = TypeVar("Model", bound=torch.nn.Module)

PROMPTS: list[list[int]] = json.loads((FOLDER / "prompts.json").read_text())


@pytest.fixture(scope="module")
def pair() -> Pair:
    return read(FOLDER)


@pytest.fixture(scope="module")
def sessions(pair: Pair) -> list[Continued]:
    return measure.continued(pair.target, PROMPTS)


def _shuffled(trained: Model) -> Model:
    """A copy whose matrices have the same entries in other places."""
    torch.manual_seed(0)
    shuffled = copy.deepcopy(trained)
    for weight in shuffled.parameters():
        if weight.ndim == 2:
            weight.copy_(weight.flatten()[torch.randperm(weight.numel())].view_as(weight))
    return shuffled


def test_all_weights_take_less_than_five_megabytes() -> None:
    files = list(FOLDER.glob("*/model.safetensors"))

    assert sorted(file.parent.name for file in files) == sorted(CONFIGURATIONS)
    assert sum(file.stat().st_size for file in files) < 5_000_000


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration_is_the_one_that_the_models_in_torch_have(name: str) -> None:
    assert json.loads((FOLDER / name / "config.json").read_text()) == CONFIGURATIONS[name]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_weights_are_stored_in_what_float32_holds_exactly(name: str) -> None:
    with safe_open(FOLDER / name / "model.safetensors", "pt") as weights:
        assert {weights.get_slice(key).get_dtype() for key in weights.keys()} == {"BF16"}  # noqa: SIM118 - not a dict


def test_the_dflash_draft_does_not_read_the_last_layer_whose_output_sglang_does_not_give() -> None:
    read_layers = CONFIGURATIONS["DFLASH"]["dflash_config"]["target_layer_ids"]

    assert max(read_layers) < CONFIGURATIONS["target"]["num_hidden_layers"] - 1


def test_prompts_are_made_up_by_the_target_from_a_seed(pair: Pair) -> None:
    assert made_up(pair.target)[:6] == PROMPTS[:6]


def test_no_prompt_stands_in_the_text_that_was_learned_but_short_ones() -> None:
    learned, _ = corpus.read()

    assert [prompt for prompt in PROMPTS if len(prompt) > 40 and bytes(prompt) in learned] == []


def test_another_corpus_is_refused_and_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "_docstrings", lambda: ["What another release of the package says."])

    with pytest.raises(corpus.CorpusError, match=f"should have {corpus.DIGEST}: install transformers=="):
        corpus.read()


def test_the_target_predicts_text_that_it_has_not_read(pair: Pair) -> None:
    assert measure.surprise(pair.target, pieces(corpus.read()[1])) < 1.6


def test_a_target_with_shuffled_weights_predicts_nothing(pair: Pair) -> None:
    assert measure.surprise(_shuffled(pair.target), pieces(corpus.read()[1])) > 5.0


def test_reading_token_by_token_is_reading_at_once(pair: Pair, sessions: list[Continued]) -> None:
    for tokens, length in sessions:
        following = pair.target.lm_head(pair.target.read(tokens[:, :-1]).hidden[:, length - 1 :]).argmax(-1)

        assert torch.equal(following, tokens[:, length:])


def test_between_two_and_a_half_and_five_tokens_are_accepted_of_a_dflash_block(
    pair: Pair, sessions: list[Continued]
) -> None:
    assert 2.5 < measure.acceptance(measure.dflash_rounds(pair, sessions)) < 5.0


def test_more_than_one_and_a_half_tokens_are_accepted_of_three_eagle_steps(
    pair: Pair, sessions: list[Continued]
) -> None:
    assert measure.acceptance(measure.eagle_rounds(pair, sessions)) > 1.5


def test_of_drafts_with_shuffled_weights_hardly_anything_is_accepted(pair: Pair, sessions: list[Continued]) -> None:
    drafts = Pair(pair.target, _shuffled(pair.dflash), _shuffled(pair.eagle))

    assert measure.acceptance(measure.dflash_rounds(drafts, sessions)) < 1.1
    assert measure.acceptance(measure.eagle_rounds(drafts, sessions)) < 1.1
