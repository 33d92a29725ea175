"""Input without an end, of enormous size or in pieces; hostile names; outputs that cannot be written."""

import os

import pytest
from hostile import assert_no_problem, changes, control_characters, hashes_of, problems_of, thin_out
from hostile_commands import FORMS, SLOW, Place, arguments_of, file_places, places
from hostile_inputs import (
    CSV,
    ESCAPES,
    IMAGES,
    JSON_LINES,
    RUN_FILES,
    TEXTS,
    write_hostile_images,
    write_texts,
)
from hostile_place import keep_place, make_place, run_form

CONTROLS = "a\nb\x1b[31mred\x9b"
NOT_UTF8 = os.fsdecode(b"\xff\xfe")
DEVICES = ("/dev/full", "/dev/zero", "/dev/urandom", "/dev/stdin/x", "/proc/self/mem")
NO_HOME = "~no-user-of-this-name/x"
INPUTS = (
    *("missing", "", NO_HOME, "~", "~/missing", "hostile/loop", "hostile/loop/x", "x" * 300, "y" * 5000),
    *("runs", "source/x", ".", "/", "hostile/dangling", "-", "--", "*", "%s", "{}", "file://source"),
    *(f"hostile/{CONTROLS}", f"hostile/{NOT_UTF8}", f"missing/{CONTROLS}", f"missing/{NOT_UTF8}"),
)
OUTPUTS = (
    *("/dev/full", "", ".", "/", NO_HOME, "hostile/loop", "hostile/loop/x", "x" * 300, "y" * 5000),
    *("{out}/folder", "{out}/file/x", "{out}/missing/x", "/proc/self/x", "/proc/x", "/dev/full/x"),
    *(f"{{out}}/{CONTROLS}", f"{{out}}/{NOT_UTF8}", f"{{out}}/missing/{CONTROLS}"),
    *("{out}/beside/model.safetensors", "{out}/beside/config.json", "{out}/beside/tokenizer.json"),
)
# What is read must not be overwritten.
READ = ("source", "target", "three", "pairs.tsv", "labels.tsv", "cat.jpg", "transformer.toml", "gpt.toml")
FILE_PLACES = [where for where in file_places() if where.command not in (*SLOW, "import")]
MODEL_TEXT = ("translate", "backtranslate", "interactive", "lm generate", "mlm fill")  # on standard output


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a place with hostile files in the folder ``hostile``."""
    folder = make_place(tmp_path_factory.mktemp("place"))
    hostile = folder / "hostile"
    (hostile / "images").mkdir(parents=True)
    (hostile / "loop").symlink_to("loop")
    (hostile / "dangling").symlink_to("nowhere")
    for name in (CONTROLS, NOT_UTF8):
        (hostile / name).write_bytes((folder / "labels.tsv").read_bytes())
    write_texts(hostile)
    write_hostile_images(hostile / "images")
    yield from keep_place(folder)


def problems_with(where: Place, value: str, place, out, *, apart=False, codes=(0, 2)):
    """Put a value into a command, and return what is wrong with what happens then."""
    codes = (*codes, 1) if where.command == "check" else codes
    done = run_form(where.form(value), place, out, apart=apart)
    return problems_of(done, codes=codes, is_report=where.command not in MODEL_TEXT)


@pytest.mark.parametrize("where", [w for w in FILE_PLACES if not w.is_output], ids=str)
@pytest.mark.parametrize("part", thin_out(range(12), 12))
def test_a_hostile_name_of_an_input(place, tmp_path, where, part):
    values = INPUTS[(part + FILE_PLACES.index(where)) % 12 :: 12]
    if str(where) == "vision classify IMAGE":  # every file of a folder that is no image has a line of its own
        values = [value for value in values if value not in ("", ".", "/", "~", "runs")]
    assert_no_problem(
        {repr(value[:60]): problems_with(where, value, place, tmp_path / "out") for value in values}
    )


@pytest.mark.parametrize("where", thin_out([w for w in FILE_PLACES if not w.is_output], 8), ids=str)
def test_a_device_is_refused(place, tmp_path, where):
    codes = (2,) if where.option != "--comet-model" else (0, 2)
    assert_no_problem(
        {
            value: problems_with(where, value, place, tmp_path / "out", apart=True, codes=codes)
            for value in DEVICES
        }
    )


@pytest.mark.parametrize("where", [w for w in FILE_PLACES if w.is_output], ids=str)
@pytest.mark.parametrize("part", thin_out(range(4), 4))
def test_a_hostile_name_of_an_output(place, tmp_path, where, part):
    """Nothing but the output is written: no part of a model, and nothing that the command reads."""
    read = [value for value in FORMS[where.command].values() if value in READ]
    model = place / "runs" / "pairs" / "final"
    before, problems = hashes_of(place), {}
    for value in (*OUTPUTS[(part + FILE_PLACES.index(where)) % 4 :: 4], *read):
        found = problems_with(where, value, place, tmp_path / "out")
        if (beside := tmp_path / "out" / "beside").exists():
            found += [
                path.name
                for path in model.iterdir()
                if (beside / path.name).read_bytes() != path.read_bytes()
            ]
        problems[repr(value[:60])] = found
    assert_no_problem({**problems, "inputs": changes(place, before)})


TEXT_PLACES = [
    w
    for w in FILE_PLACES
    if w.metavar in ("FILE", "FILE[:WEIGHT]") and not w.is_output and w.option != "--config"
]
PAIR_PLACES = [w for w in TEXT_PLACES if w.option.endswith("pairs")]
IMAGE_PLACES = [w for w in FILE_PLACES if w.metavar in ("IMAGE", "PATH")]


@pytest.mark.parametrize("where", TEXT_PLACES, ids=str)
@pytest.mark.parametrize("part", thin_out(range(11), 11))
def test_a_hostile_text(place, tmp_path, where, part):
    names = list(TEXTS)[(part + TEXT_PLACES.index(where)) % 11 :: 11]
    assert_no_problem(
        {name: problems_with(where, f"hostile/{name}.tsv", place, tmp_path / "out") for name in names}
    )


@pytest.mark.parametrize("where", PAIR_PLACES, ids=str)
@pytest.mark.parametrize(
    "file", thin_out([*(f"{n}.jsonl" for n in JSON_LINES), *(f"{n}.csv" for n in CSV)], 5)
)
def test_a_hostile_file_of_pairs(place, tmp_path, where, file):
    assert problems_with(where, f"hostile/{file}", place, tmp_path / "out") == []


@pytest.mark.parametrize("where", thin_out([w for w in FILE_PLACES if w.option == "--config"], 2), ids=str)
@pytest.mark.parametrize("name", RUN_FILES)
def test_a_hostile_run_file(place, tmp_path, where, name):
    assert problems_with(where, f"hostile/{name}.toml", place, tmp_path / "out", codes=(2,)) == []


@pytest.mark.parametrize("where", IMAGE_PLACES, ids=str)
@pytest.mark.parametrize(
    "name", thin_out(["", *IMAGES, "photos", "unnamed", "mixed", "one", "none"], 6), ids=repr
)
def test_hostile_images(place, tmp_path, where, name):
    if not name and where.option == "IMAGE":
        pytest.skip("every file of a folder that is no image has a line of its own")
    assert problems_with(where, f"hostile/images/{name}", place, tmp_path / "out", apart=True) == []


@pytest.mark.parametrize("name", [CONTROLS, NOT_UTF8], ids=["controls", "not UTF-8"])
@pytest.mark.parametrize("command", thin_out([c for c in FORMS if c not in (*SLOW, "import")], 2))
def test_a_hostile_name_of_a_folder(place, tmp_path, command, name):
    """Models, runs and texts are under a hostile name, and outputs go there."""
    folder = tmp_path / name
    folder.mkdir()
    for original in place.iterdir():
        (folder / original.name).symlink_to(original)
    form = {option: _inside(value, folder) for option, value in FORMS[command].items()}
    done = run_form(arguments_of(command, form), place, folder / "out")
    assert problems_of(done, is_report=command not in MODEL_TEXT) == []


def _inside(value: str, folder) -> str:
    return str(folder / value) if (folder / value).exists() else value


def test_reports_have_no_control_characters(place, tmp_path):
    """Names of classes, files and folders are on the terminal, in model cards and on pages."""
    (tmp_path / CONTROLS).mkdir()
    lines = (place / "labels.tsv").read_text().replace("odd", f"odd {ESCAPES}".strip())
    (tmp_path / CONTROLS / "labels.tsv").write_text(lines, encoding="utf-8")
    run = tmp_path / CONTROLS / "run"
    form = {**FORMS["mlm finetune"], "--pairs": str(tmp_path / CONTROLS / "labels.tsv"), "--out": str(run)}
    sentence = f"ab {ESCAPES} <script>"
    page = ["inspect", "runs/pairs/final", sentence, "--out", str(tmp_path / CONTROLS / "page.html")]
    for words in (
        arguments_of("mlm finetune", form),
        ["report", str(run)],
        ["mlm", "classify", str(run / "final"), "--input", "three"],
        page,
        ["mlm", "fill", "runs/mlm/final", f"[MASK] {ESCAPES}"],
    ):
        done = run_form(words, place, tmp_path / "out")
        assert problems_of(done, codes=(0,), is_report=True) == []
    written = [*run.rglob("README.md"), tmp_path / CONTROLS / "page.html"]
    assert len(written) > 1
    for path in written:
        assert control_characters(path.read_text(encoding="utf-8")) == []


def test_hostile_class_names_of_images(place, tmp_path):
    form = {**FORMS["vision train"], "--images": "hostile/images/photos", "--hold-out": "0.5"}
    for words in (
        arguments_of("vision train", form),
        ["report", "{out}/run"],
        ["vision", "classify", "{out}/run/final", "cat.jpg"],
        ["vision", "evaluate", "{out}/run/final", "--images", "hostile/images/photos"],
    ):
        done = run_form(words, place, tmp_path / "out", keep=True)
        assert problems_of(done, codes=(0,), is_report=True) == []
    for path in (tmp_path / "out").rglob("README.md"):
        assert control_characters(path.read_text(encoding="utf-8")) == []


LIMITED = [
    w.command for w in places() if w.option == "--max-line-bytes" and w.command not in (*SLOW, "inspect")
]


@pytest.mark.parametrize("command", LIMITED)
def test_a_line_beyond_the_limit_is_named(place, tmp_path, command):
    words = arguments_of(command, {**FORMS[command], "--max-line-bytes": "5"})
    done = run_form(words, place, tmp_path / "out")
    assert problems_of(done, codes=(2,), names=(", line 1",)) == []
    assert "--max-line-bytes" in done.stderr
