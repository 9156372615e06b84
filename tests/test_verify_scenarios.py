"""Verify scenarios: what is drawn can be, survives JSON, and holds what the accept rule turns on."""

import msgspec
import pytest
from msgspec.structs import replace

from harness.reference.accept import choices, greedy
from harness.scenario import Scenario, VerifyRequest, VerifyScenario
from harness.scenario.capability import missing
from harness.scenario.validity import why_invalid
from harness.scenario.verify_strategies import (
    ALGORITHMS,
    TEMPERATURES,
    TOP_KS,
    TOP_PS,
    VerifyCell,
    verify_cells,
)
from tests.ideal import CAPABILITIES, drawn_verifies

CELLS = verify_cells(CAPABILITIES)
REQUEST = VerifyRequest((0, 1, 2), ((0, 9, 0), (0, 0, 9), (9, 0, 0)))
VERIFY = VerifyScenario("EAGLE", (REQUEST,))


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_what_is_drawn_is_in_its_cell_can_be_and_survives_json(cell: VerifyCell) -> None:
    for scenario in drawn_verifies(cell):
        assert why_invalid(scenario) == ""
        assert (scenario.algorithm, scenario.path, scenario.sampled) == (*cell[:2], cell.sampled)
        assert cell.shape == "chain" or scenario.shape == "tree"
        assert scenario.needs_cuda == ""
        assert scenario == msgspec.json.decode(msgspec.json.encode(scenario), type=Scenario)


def _kinds(request: VerifyRequest) -> set[str]:
    """What of the accept rule a request turns on."""
    drafted, lengths = request.depth() - 1, {len(one) - 1 for one in greedy(request)}
    kinds = {"tie"} if any(len(choices(request, node)) > 1 for node in range(len(request.tokens))) else set()
    kinds |= {"all"} if drafted and lengths == {drafted} else set()
    kinds |= {"none"} if drafted and lengths == {0} else set()
    kinds |= {"some"} if drafted and 0 < min(lengths) <= max(lengths) < drafted else set()
    forbidden = [token for token, row in zip(request.tokens[1:], request.allowed, strict=False) if token not in row]
    return kinds | ({"forbidden"} if forbidden else set())


@pytest.mark.parametrize("cell", [cell for cell in CELLS if not cell.sampled], ids=str)
def test_ties_masks_and_every_kind_of_acceptance_are_drawn(cell: VerifyCell) -> None:
    scenarios = drawn_verifies(cell, 100)

    assert {kind for scenario in scenarios for one in scenario.requests for kind in _kinds(one)} == {
        "tie", "all", "none", "some", "forbidden",
    }  # fmt: skip
    assert {len(scenario.requests) for scenario in scenarios} == {1, 2, 3, 4}


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell.sampled and cell.path == "ascend"], ids=str)
def test_every_parameter_and_greedy_requests_beside_sampled_ones_are_drawn(cell: VerifyCell) -> None:
    requests = [request for scenario in drawn_verifies(cell, 100) for request in scenario.requests]
    sampling = [request for request in requests if request.sampled]

    assert len(requests) > len(sampling)
    assert {request.temperature for request in sampling} == set(TEMPERATURES)
    assert {request.top_k for request in sampling} == set(TOP_KS)
    assert {request.top_p for request in sampling} == set(TOP_PS)
    assert any(request.allowed for request in sampling)


def test_what_filters_on_cuda_is_named() -> None:
    request = replace(REQUEST, temperature=1.0, draft_logits=REQUEST.logits[:2])
    verify = VerifyScenario("DSPARK", (request,), "cuda")

    assert verify.needs_cuda == ""
    assert replace(verify, requests=(replace(request, top_k=2),)).needs_cuda == ""
    assert replace(verify, requests=(request, replace(request, top_k=2))).needs_cuda == "top_k_renorm_prob"
    assert replace(verify, requests=(replace(request, top_p=0.5),)).needs_cuda == "top_p_renorm_prob"


def test_every_algorithm_is_verified_as_on_an_npu_and_no_cell_needs_a_cuda_device() -> None:
    assert {cell.algorithm for cell in CELLS if cell.path == "ascend"} == set(ALGORITHMS)
    assert {cell.algorithm for cell in CELLS if cell.path == "cuda"} == {"DFLASH", "DSPARK"}


def test_a_grammar_with_dflash_needs_a_release_that_takes_it() -> None:
    grammar = replace(REQUEST, allowed=((1,), (2,), (0,)))

    assert missing(VerifyScenario("DFLASH", (REQUEST, grammar)), ("DFLASH",)) == {"dflash-grammar"}
    assert missing(VerifyScenario("DFLASH", (REQUEST,)), ("DFLASH",)) == set()
    assert missing(VerifyScenario("EAGLE", (grammar,)), ("EAGLE",)) == set()


@pytest.mark.parametrize(
    ("scenario", "sentence"),
    [
        (replace(VERIFY, requests=()), "a verify has 1 to 64 requests"),
        (VerifyScenario("EAGLE", (VerifyRequest((), ()),)), "a request needs a token to verify, and logits after it"),
        (VerifyScenario("EAGLE", (VerifyRequest((0,) * 33, ((0, 1),) * 33),)), "a request has more than 32 tokens"),
        (VerifyScenario("EAGLE", (VerifyRequest((0,), ((1,),)),)), "a vocabulary has 2 to 64 tokens"),
        (VerifyScenario("DSPARK", (replace(REQUEST, parents=(0, 0)),)), "DSPARK verifies no trees"),
        (VerifyScenario("DSPARK", (VerifyRequest((0,), ((0, 1),)),)), "DSPARK drafts a token or more"),
        (VerifyScenario("DSPARK", (replace(REQUEST, temperature=1.0),)), "has the draft's logits for each node but"),
        (replace(VERIFY, requests=(replace(REQUEST, draft_logits=((0, 1, 2),) * 2),)), "and no other has any"),
        (replace(VERIFY, draws=0), "draws=0 is not in 1 to 4096"),
        (replace(VERIFY, seed=-1), "seed=-1 is not in 0 to"),
        (replace(VERIFY, requests=(REQUEST, VerifyRequest((0,), ((0, 1, 2),)))), "have as many tokens"),
        (replace(VERIFY, requests=(replace(REQUEST, logits=REQUEST.logits[:2]),)), "there are logits after each"),
        (replace(VERIFY, requests=(replace(REQUEST, logits=((0, 1, 2), (0,), (0,))),)), "a logit for each token"),
        (replace(VERIFY, requests=(replace(REQUEST, logits=((0, 1, 1001),) * 3),)), "a logit is beyond 1000"),
        (replace(VERIFY, requests=(replace(REQUEST, tokens=(0, 1, 3)),)), "a token is not in the vocabulary"),
        (replace(VERIFY, requests=(replace(REQUEST, allowed=((7,), (0,), (0,))),)), "is not in the vocabulary"),
        (replace(VERIFY, requests=(replace(REQUEST, parents=(0, 2)),)), "each drafted token follows an earlier one"),
        (replace(VERIFY, requests=(replace(REQUEST, tokens=(0, 1, 1), parents=(0, 0)),)), "two siblings are the same"),
        (replace(VERIFY, requests=(replace(REQUEST, allowed=((0,), (), (0,))),)), "allows a token after each"),
        (replace(VERIFY, requests=(replace(REQUEST, temperature=-1.0),)), "temperature=-1.0 is not in 0 to 100"),
        (replace(VERIFY, requests=(replace(REQUEST, top_k=65),)), "top_k=65 is not in 0 to 64"),
        (replace(VERIFY, requests=(replace(REQUEST, top_p=0.0),)), "top_p=0.0 is not above 0 and up to 1"),
    ],
)
def test_a_verify_that_cannot_be_is_refused_with_its_reason(scenario: VerifyScenario, sentence: str) -> None:
    assert why_invalid(VERIFY) == ""
    assert sentence in why_invalid(scenario)
