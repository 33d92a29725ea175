"""Options without effect and options that contradict each other are refused by name."""

import pytest
from hostile import assert_no_problem, problems_of, thin_out
from hostile_commands import places
from hostile_contradictions import CONTRADICTIONS
from hostile_place import KINDS, copy_folder, keep_place, make_place, run_form

USED_BY_RESUME = {"--out", "--steps", "--device", "--max-line-bytes"}
VALUES = {
    "FILE": "source",
    "FILE[:WEIGHT]": "source",
    "KIND|FILE": "byte",
    "MODEL": "runs/pairs/final",
    "PATH": "photos",
    "NAME": "tiny",
}
VALUES |= {
    "CODE": "de",
    "N": "3",
    "X": "0.3",
    "RATE": "0.1",
    "RANK": "3",
    "KEY=VALUE": "training.warmup=3",
    "N|HxW": "8",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    yield from keep_place(make_place(tmp_path_factory.mktemp("place")))


@pytest.mark.parametrize("command", CONTRADICTIONS)
def test_a_contradiction_is_named(place, tmp_path, command):
    words = command.split()
    trains = words[0] == "train" or words[1] in ("train", "finetune")
    if trains and "--out" not in words:
        words += ["--out", "{out}/run"]
    if trains and not {"--steps", "--resume"} & {*words}:
        words += ["--steps", "1"]
    done = run_form(words, place, tmp_path / "out")
    names = (CONTRADICTIONS[command].replace("{copy}", str(tmp_path / "out" / "copy")),)
    assert problems_of(done, codes=(2,), names=names, is_report=True) == []


@pytest.mark.parametrize("kind", thin_out(KINDS, 3))
def test_an_option_without_effect_on_a_resumed_run_is_named(place, tmp_path, kind):
    """The data and the settings of a run are those that it was prepared with."""
    command = KINDS[kind].command
    ignored = [w for w in places() if w.command == command and w.option not in USED_BY_RESUME]
    assert len(ignored) > 8
    problems = {}
    for where in ignored:
        value = {"--precision": "float32"}.get(where.option, VALUES[where.metavar])
        run = copy_folder(place / "runs" / kind, tmp_path / "run")
        words = [*command.split(), "--resume", "--out", str(run), f"{where.option}={value}"]
        done = run_form(words, place, tmp_path / "out")
        named = [] if where.option in done.stdout + done.stderr else ["it is not named"]
        problems[where.option] = named + problems_of(done, is_report=True)
    assert_no_problem(problems)
