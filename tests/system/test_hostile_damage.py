"""Damaged, missing and forged files of runs and models: nothing damaged is used; its name is on one line."""

import random
import shutil
from pathlib import Path

import pytest
from hostile import assert_no_problem, invoke, problems_of
from hostile_damage import DAMAGES, flip, forge_header, forge_manifest
from hostile_place import KINDS, copy_folder, keep_place, make_place
from hostile_safetensors import HEADERS, LIES, lie_about
from safetensors import safe_open

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))]
MODELS = [name for name, kind in KINDS.items() if kind.uses]
RESULTS = ("best", "final")  # of a run: written, but never read
MAY_BE_EDITED = ("run.toml", "config.json", "adapter.json")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    yield from keep_place(make_place(tmp_path_factory.mktemp("place")))


@pytest.fixture(scope="module")
def continued(place, tmp_path_factory):
    """Return the weights of each run after it was continued without any damage."""
    weights = {}
    for name, kind in KINDS.items():
        run = copy_folder(place / "runs" / name, tmp_path_factory.mktemp("continued") / name)
        done = invoke(*kind.resume(run))
        assert done.returncode == 0, done.stderr
        weights[name] = weights_of(run)
    return weights


def weights_of(run: Path) -> dict[str, bytes]:
    with safe_open(weights_file(run / "final"), framework="np") as file:
        return {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118


def weights_file(model: Path) -> Path:
    """Return the file with the weights of a model or of an adapter."""
    (file,) = model.glob("*.safetensors")
    return file


def files_of(folder: Path, *, without: tuple[str, ...] = ()) -> list[Path]:
    """Return all files that are not empty, relative to the folder."""
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return [path for path in paths if path.parts[0] not in without and (folder / path).stat().st_size]


def skip_in_short_tests(kind: str, part: Path) -> bool:
    """Tell whether the same files of another kind of run are enough, because one code reads them all."""
    return kind != "pairs" and part.parts[0] in ("checkpoints", "metrics.jsonl", "run.toml", "manifest.json")


def is_data(file: Path) -> bool:
    """Tell whether a file of a run is data or a tokenizer, of which every bit counts."""
    names = ("tokenizer.json", "tokenizer.source.json", "tokenizer.target.json", "factors.json")
    return file.parts[0] in ("data", "text", *names)


def resume(name: str, run: Path, part: Path, names: tuple[str, ...], unharmed: dict[str, bytes]) -> list[str]:
    """Resume a run, a part of which is damaged or missing, and return what is wrong with how it ends."""
    is_checkpoint, is_missing = part.parts[0] == "checkpoints", not (run / part).exists()
    done = invoke(*KINDS[name].resume(run))
    if is_checkpoint or part.name == "manifest.json":
        names = ()  # the other files are named that do not fit it, or the folder
    found = problems_of(done, codes=(2,) if is_data(part) else (0, 2), names=names)
    told = is_checkpoint and (is_missing or "damaged" in done.stdout + done.stderr)
    if done.returncode == 0 and part.name != "run.toml" and not told and weights_of(run) != unharmed:
        found.append(f"the result is another one: {done.stdout[-200:]}")
    return found


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_of_a_run_is_not_used(place, continued, tmp_path, kind, damage, seed):
    original = place / "runs" / kind
    files = files_of(original, without=RESULTS)
    if not seed:
        files = [file for file in files if not skip_in_short_tests(kind, file)]
        if damage is not flip:  # each of the other damages to some of the files
            files = files[DAMAGES.index(damage) % 5 :: 5]
    problems = {}
    for file in files:
        run = copy_folder(original, tmp_path / "run")
        names = damage(run / file, random.Random(f"{kind} {file} {seed}"))
        problems[str(file)] = resume(kind, run, file, names, continued[kind])
    assert_no_problem(problems)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("short", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_missing_part_of_a_run_is_named(place, continued, tmp_path, kind, short):
    original = place / "runs" / kind
    problems = {}
    for path in sorted(original.rglob("*")):
        part = path.relative_to(original)
        if short and (part.parts[0] in RESULTS or skip_in_short_tests(kind, part)):
            continue
        run = copy_folder(original, tmp_path / "run")
        shutil.rmtree(run / part) if path.is_dir() else (run / part).unlink()
        problems[str(part)] = resume(kind, run, part, (part.name,), continued[kind])
    assert_no_problem(problems)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_damage_that_the_hashes_do_not_show_causes_no_traceback(place, tmp_path, kind, seed):
    original = place / "runs" / kind
    problems = {}
    for file in filter(is_data, files_of(original)):
        damages = DAMAGES[:-1] if seed else DAMAGES[:1]  # a file that is missing has no hash
        for damage in damages:
            run = copy_folder(original, tmp_path / "run")
            damage(run / file, random.Random(f"{kind} {file} {seed}"))
            forge_manifest(run, original)
            problems[f"{damage.__name__} {file}"] = problems_of(invoke(*KINDS[kind].resume(run)))
    assert_no_problem(problems)


def use(kind: str, model: Path, number: int, place: Path, out: Path):
    """Run one of the commands that use a model."""
    uses = KINDS[kind].uses
    words = uses[number % len(uses)].split()
    return invoke(*(word.replace("{}", str(model)).replace("{out}", str(out)) for word in words), cwd=place)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))])
@pytest.mark.parametrize("kind", MODELS)
def test_a_damaged_file_of_a_model_is_not_used(place, tmp_path, kind, seed):
    original = place / "runs" / kind / "final"
    problems = {}
    for file in files_of(original):
        for number, damage in enumerate(DAMAGES):
            model = copy_folder(original, tmp_path / "model")
            names = damage(model / file, random.Random(f"{kind} {file} {seed}"))
            done = use(kind, model, number + seed, place, tmp_path)
            codes = (0, 2) if str(file) in MAY_BE_EDITED else (2,)
            problems[f"{damage.__name__} {file}"] = problems_of(done, codes=codes, names=names)
    assert_no_problem(problems)


@pytest.mark.parametrize("lie", [*LIES, *HEADERS])
def test_weights_that_lie_are_refused(place, tmp_path, lie):
    problems = {}
    for number, kind in enumerate(MODELS):
        model = copy_folder(place / "runs" / kind / "final", tmp_path / "model")
        file = weights_file(model)
        lie_about(file, lie)
        done = use(kind, model, number, place, tmp_path)
        problems[kind] = problems_of(done, codes=(2,), names=(file.name,))
    assert_no_problem(problems)


@pytest.mark.parametrize("lie", LIES)
def test_weights_that_lie_are_refused_without_hashes(place, tmp_path, lie):
    model = copy_folder(place / "runs" / "lm" / "final", tmp_path / "model")
    forge_header(model)
    assert use("lm", model, 1, place, tmp_path).returncode == 0
    lie_about(model / "model.safetensors", lie)
    done = use("lm", model, 1, place, tmp_path)
    assert problems_of(done, codes=(2,), names=("model.safetensors",)) == []


HEADER_LIES = {
    "layers": 10_000_000,
    "d_model": 2**40,
    "heads": 0,
    "d_ff": -1,
    "max_length": 10**30,
    "dropout": float("nan"),
    "norm_epsilon": float("inf"),
    "family": "\x1b[31mred",
    "activation": ["gelu"],
}


@pytest.mark.parametrize("setting", HEADER_LIES)
def test_a_header_that_lies_is_refused_without_hashes(place, tmp_path, setting):
    model = copy_folder(place / "runs" / "lm" / "final", tmp_path / "model")
    forge_header(model, lambda header: header["model"].update({setting: HEADER_LIES[setting]}))
    done = use("lm", model, 1, place, tmp_path)
    assert problems_of(done, codes=(2,), names=("model.safetensors", "config.json")) == []


@pytest.mark.parametrize("size", [0, -1, 2**31, 10**30, 1.5, "300", None])
@pytest.mark.parametrize("field", ["source", "target", "pad", "eos"])
def test_a_vocabulary_that_lies_is_refused_without_hashes(place, tmp_path, field, size):
    model = copy_folder(place / "runs" / "lm" / "final", tmp_path / "model")
    forge_header(model, lambda header: header["vocabulary"].update({field: size}))
    done = use("lm", model, 1, place, tmp_path)
    accepted = (field, size) in [("pad", 0), ("eos", 0)]
    assert problems_of(done, codes=(0, 2) if accepted else (2,)) == []
