import json
import re
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from transduce.cli.main import app
from transduce.config import PRESETS, RunConfig, TransformerConfig
from transduce.config.attention import HashedAttention, LowRankAttention, WindowAttention
from transduce.nn.attention import scaled_dot_product_attention
from transduce.nn.hashed_attention import HashedSelfAttention
from transduce.nn.low_rank_attention import LowRankSelfAttention
from transduce.nn.window_attention import Window, window_attention
from transduce.paper import (
    causality,
    cost,
    counting,
    dot_products,
    embeddings,
    optimisation,
    parameters,
    positions,
)
from transduce.paper.claim import Claim
from transduce.paper.claim_table import print_claims, to_json
from transduce.paper.claims import all_claims


@pytest.fixture(scope="module")
def claims():
    return list(all_claims())


def test_only_the_known_exceptions_fail(claims):
    assert [claim.claim for claim in claims if claim.is_unexpected] == []
    vocabulary, big = (claim for claim in claims if not claim.holds)
    assert (vocabulary.section, vocabulary.paper) == ("5.1", "37,000")
    assert big.claim.startswith("parameters of big")


def test_the_documents_state_how_many_claims_hold(claims):
    root = Path(__file__).parents[2]
    hold = sum(claim.holds for claim in claims)
    assert f"checks {len(claims)} claims" in (root / "README.md").read_text(encoding="utf-8")
    assert f"{hold} of {len(claims)} claims hold" in (root / "docs" / "paper.md").read_text(encoding="utf-8")


BROKEN = {
    "the scale is 1/d_k": ("transduce.nn.attention.math.sqrt", lambda x: x, dot_products),
    "a position does not attend to itself": (
        "transduce.nn.multi_head_attention.causal_mask",
        lambda n, device=None: torch.ones(n, n, dtype=torch.bool).tril(-1),
        causality,
    ),
    "later positions are visible": (
        "transduce.nn.multi_head_attention.causal_mask",
        lambda n, device=None: torch.ones(n, n, dtype=torch.bool),
        causality,
    ),
    "embeddings are not scaled": ("transduce.nn.embedding.math.sqrt", lambda x: 1.0, embeddings),
    "positions grow linearly": (
        "transduce.paper.positions.sinusoids",
        lambda n, d: torch.arange(float(n))[:, None] * torch.arange(float(d)),
        positions,
    ),
    "big is bigger": (
        "transduce.paper.parameters.PRESETS",
        {**PRESETS, "big": RunConfig(model=TransformerConfig(d_model=1024, encoder_layers=20, heads=16))},
        parameters,
    ),
    "the learning rate only falls": (
        "transduce.paper.optimisation.paper_schedule",
        lambda step, d_model, warmup: 1 / step,
        optimisation,
    ),
}


@pytest.mark.parametrize("defect", BROKEN)
def test_a_defect_makes_a_claim_fail(defect, monkeypatch):
    target, replacement, group = BROKEN[defect]
    parameters._counts.cache_clear()
    monkeypatch.setattr(target, replacement)
    assert any(claim.is_unexpected for claim in group.claims())
    parameters._counts.cache_clear()


def test_every_figure_of_table_3_is_checked(claims):
    counts = {
        claim.claim.split()[2]: claim.paper for claim in claims if claim.claim.startswith("parameters of")
    }
    assert counts == {row: f"{millions}M" for row, millions in parameters.MILLIONS.items()}


def test_sections(claims):
    assert {"3.1", "3.2.1", "3.2.2", "3.4", "3.5", "4", "5.1", "5.3", "5.4", "Table 1", "Table 3"} | {
        "later"
    } == {claim.section for claim in claims}


def test_measuring_does_not_change_torchs_random_state():
    before = torch.get_rng_state()
    next(all_claims())
    assert torch.equal(torch.get_rng_state(), before)


def test_json(claims):
    rows = json.loads(to_json(claims))
    assert len(rows) == len(claims)
    assert list(rows[0]) == ["section", "claim", "paper", "measured", "holds", "known_exception"]


@pytest.mark.parametrize("width", [40, 80, 150])
def test_an_unexpected_failure_is_shown(width):
    out = StringIO()
    print_claims([Claim("9", "pigs fly", "yes", "no", holds=False)], Console(file=out, width=width))
    assert "NO*" in out.getvalue()
    assert "1 unexpected failures" in " ".join(out.getvalue().split())


@pytest.mark.parametrize("width", [40, 60, 80, 109, 110, 150])
def test_no_text_is_cut_at_any_width(claims, width):
    out = StringIO()
    print_claims(claims, Console(file=out, width=width))
    assert "…" not in out.getvalue()


@pytest.mark.parametrize(("holds", "known", "code"), [(True, "", 0), (False, "", 1), (False, "because", 0)])
def test_the_exit_code_reports_unexpected_failures(monkeypatch, holds, known, code):
    claim = Claim("9", "pigs fly", "yes", "no", holds=holds, known_exception=known)
    monkeypatch.setattr("transduce.paper.claims.all_claims", lambda: iter([claim]))
    assert CliRunner().invoke(app, ["paper"]).exit_code == code


# The instruments, on computations whose values are known:


def test_the_range_of_agreeing_vocabularies_is_exact():
    rows = [row for row in parameters.MILLIONS if row != "big"]
    agreeing = parameters.agreeing_vocabularies(rows)

    def all_agree(size):
        return all(
            abs(parameters.count_parameters(row, size) / 1e6 - parameters.MILLIONS[row]) < 0.5 for row in rows
        )

    assert all_agree(agreeing.start)
    assert all_agree(agreeing.stop - 1)
    assert not all_agree(agreeing.start - 1)
    assert not all_agree(agreeing.stop + 1)
    assert not parameters.agreeing_vocabularies(list(parameters.MILLIONS))


def test_multiplications_are_counted():
    assert cost.cost(lambda x: x @ x.T, 5, 3) == 5 * 3 * 5
    assert cost.cost(cost.self_attention, 10, 4) == 2 * 10 * 10 * 4
    assert cost.cost(cost.recurrent, 10, 4) == 2 * 10 * 4 * 4
    assert cost.cost(cost.convolutional, 10, 4) == 3 * 10 * 4 * 4
    assert cost.cost(cost.restricted, 10, 4) == 2 * 9 * 10 * 4
    # 64 queries in two blocks, each with 2 global keys and 32 + 2 · 4 nearby ones; two queries attend to all
    assert cost.cost(cost.window, 64, 4) == 2 * 64 * (2 + 40) * 4 + 2 * 2 * 64 * 4
    assert cost.cost(cost.low_rank, 64, 4) == 4 * 16 * 64 * 4
    # two rounds: two directions for four buckets; 64 positions in at most 8 + 3 chunks, each with a neighbor
    assert cost.cost(cost.hashed, 64, 4) == 2 * (64 * 2 * 4 + 2 * 11 * 8 * 16 * 4)


def test_chains_of_products_are_counted():
    a = torch.randn(3, 3, requires_grad=True)
    assert longest(a @ a) == 1
    assert longest((a @ a) @ (a @ a)) == 2
    assert longest(a @ a + a @ (a @ (a @ a))) == 3
    x = torch.randn(1, 3, 3, requires_grad=True)
    assert longest(scaled_dot_product_attention(x, x, x).values) == 2


def longest(x):
    return counting.longest_chain(x)


def test_the_layers_between_two_positions_are_counted():
    assert counting.layers_to_connect(lambda _: lambda x: x.roll(1, 0), 2) == 1
    assert counting.layers_to_connect(lambda _: lambda x: x + torch.cat((x[:1], x[:-1])), 6) == 5


def test_the_page_about_long_sequences_has_the_counted_costs():
    """The table has the costs of the claims; the text below it has the factors that they leave out."""
    page = Path(__file__).parents[2].joinpath("docs", "long-sequences.md").read_text(encoding="utf-8")
    for layer in (cost.TABLE_1[0], *cost.LATER):
        assert f"| {layer.complexity} " in page
    n, d = 4096, 64
    x = torch.randn(1, 1, n, d)
    radius, rank, hashing = WindowAttention().radius, LowRankAttention().rank, HashedAttention()
    low_rank = LowRankSelfAttention(d, 1, rank=rank, max_length=n)
    hashed = HashedSelfAttention(d, 1, buckets=hashing.buckets, rounds=hashing.rounds, chunk=hashing.chunk)
    counted = [
        (lambda: window_attention(x, x, x, Window(radius, 0)), 2 * radius + 1),
        (lambda: scaled_dot_product_attention(x, *low_rank.mix_positions(x, x)), rank),
        (lambda: hashed.attend_within_chunks(x, x, None, None), hashing.chunk * hashing.rounds),
    ]
    stated = re.search(r"(\S+) for the window .* (\S+) for\s+low rank .* (\S+) for hashed", page, re.DOTALL)
    full = 2 * n * d  # per attended position: a score, and a weighted value
    factors = [counting.count_multiplications(run) / (full * seen) for run, seen in counted]
    assert [f"{factor:.1f}" for factor in factors] == list(stated.groups())
