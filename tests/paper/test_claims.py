import json
from io import StringIO

import pytest
import torch
from rich.console import Console

from transduce.nn.attention import scaled_dot_product_attention
from transduce.paper import cost, parameters
from transduce.paper.claim import Claim
from transduce.paper.claims import all_claims
from transduce.paper.report import print_table, to_json


@pytest.fixture(scope="module")
def claims():
    return list(all_claims())


def test_only_the_known_exceptions_fail(claims):
    assert [claim.claim for claim in claims if claim.surprising] == []
    assert [claim.claim for claim in claims if not claim.holds] == [
        "one vocabulary of about 37,000 tokens",
        "parameters of big (41,000 tokens)",
    ]


def test_every_figure_of_table_3_is_there(claims):
    counts = {
        claim.claim.split()[2]: claim.paper for claim in claims if claim.claim.startswith("parameters of")
    }
    assert counts == {row: f"{millions}M" for row, millions in parameters.MILLIONS.items()}


def test_sections(claims):
    assert {"3.1", "3.2.1", "3.2.2", "3.4", "3.5", "4", "5.1", "5.3", "5.4", "Table 1", "Table 3"} == {
        claim.section for claim in claims
    }


def test_measuring_leaves_torchs_generator_alone():
    before = torch.get_rng_state()
    next(all_claims())
    assert torch.equal(torch.get_rng_state(), before)


def test_json(claims):
    rows = json.loads(to_json(claims))
    assert len(rows) == len(claims)
    assert list(rows[0]) == ["section", "claim", "paper", "measured", "holds", "known_exception"]


def test_a_surprise_is_shown():
    out = StringIO()
    print_table([Claim("9", "pigs fly", "yes", "no", holds=False)], Console(file=out, width=100))
    assert "NO" in out.getvalue()
    assert "1 unexpected failures" in out.getvalue()


# The measuring instruments, on things whose measure is known:


def test_the_agreeing_vocabularies_are_exactly_those():
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
    assert cost.count_multiplications(lambda x: x @ x.T, 5, 3) == 5 * 3 * 5
    assert cost.count_multiplications(cost.self_attention, 10, 4) == 2 * 10 * 10 * 4
    assert cost.count_multiplications(cost.recurrent, 10, 4) == 2 * 10 * 4 * 4
    assert cost.count_multiplications(cost.convolutional, 10, 4) == 3 * 10 * 4 * 4
    assert cost.count_multiplications(cost.restricted, 10, 4) == 2 * 9 * 10 * 4


def test_chains_of_products_are_counted():
    a = torch.randn(3, 3, requires_grad=True)
    assert longest(a @ a) == 1
    assert longest((a @ a) @ (a @ a)) == 2
    assert longest(a @ a + a @ (a @ (a @ a))) == 3
    x = torch.randn(1, 3, 3, requires_grad=True)
    assert longest(scaled_dot_product_attention(x, x, x).values) == 2


def longest(x):
    return cost.longest_chain(x)


def test_connections_are_found():
    assert cost.layers_to_connect(lambda _: lambda x: x.roll(1, 0), 2) == 1
    assert cost.layers_to_connect(lambda _: lambda x: x + torch.cat((x[:1], x[:-1])), 6) == 5
