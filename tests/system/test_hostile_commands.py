"""The forms into which hostile values are put are valid: otherwise nothing would read the values."""

import pytest
from hostile_commands import FORMS, SLOW, file_places, number_places, places
from hostile_place import keep_place, make_place, run_form

# A valid value for each option; of the others, the one in the form
NUMBERS = {"N": "2", "X": "0.5", "RATE": "0.001", "RANK": "2", "N|HxW": "8x8", "A,B,...": "2,4"}
VALUES = {
    **{"--pairs": "pairs.tsv", "--valid-pairs": "pairs.tsv", "--test-pairs": "pairs.tsv"},
    **{"--source-factor": "factor", "--valid-source-factor": "three.factor", "--glossary": "terms.tsv"},
    **dict.fromkeys(("--tokenizer", "--source-tokenizer", "--target-tokenizer"), "byte"),
    **{"--valid": "three", "--compare": "three", "--hypotheses": "three", "--comet-model": "model"},
    **dict.fromkeys(("--valid-source", "--valid-target", "--test-source", "--test-target"), "three"),
    **{
        "--vocabulary": "300",
        "--max-line-bytes": "100",
        "--max-length": "8",
        "--extra-length": "8",
        "--layer": "1",
    },
}
HERE = {
    ("translate", "--source-factor"): "three.factor",
    ("mlm finetune", "--pairs"): "labels.tsv",
    ("mlm finetune", "--valid"): "labels.tsv",
    ("mlm finetune", "--hold-out"): "0.3",
    ("mlm train", "--tokenizer"): "wordpiece",
    ("vision train", "--valid"): "photos",
    ("vision train", "--hold-out"): "0.3",
    ("vision train", "--from"): "runs/images/final",
    ("lm train", "--from"): "runs/lm/final",
    ("mlm train", "--from"): "runs/mlm/final",
    ("train", "--from"): "runs/pairs/final",
    ("train", "--config"): "transformer.toml",
    ("merge", "--base"): "runs/pairs/final",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    yield from keep_place(make_place(tmp_path_factory.mktemp("place")))


def test_every_command_has_a_form():
    assert {place.command for place in places()} == set(FORMS)


@pytest.mark.slow
@pytest.mark.parametrize("where", [*file_places(), *number_places()], ids=str)
def test_a_valid_value_is_accepted(place, tmp_path, where):
    if where.command in (*SLOW, "import") or where.option in ("--comet-model", "--minutes"):
        pytest.skip("it takes long, or needs more than is here")
    value = HERE.get((where.command, where.option)) or VALUES.get(where.option)
    value = value or FORMS[where.command].get(where.option) or NUMBERS.get(where.metavar) or "{out}/new"
    done = run_form(where.form(value), place, tmp_path / "out")
    found_by_check = where.command == "check" and done.returncode == 1  # it is the same text again
    assert done.returncode == 0 or found_by_check, done.stderr
