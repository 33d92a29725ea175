"""Numbers that are none, or far too large or small, in options, settings and run files."""

import pytest
from hostile import assert_no_problem, problems_of, thin_out
from hostile_commands import FORMS, SLOW, arguments_of, number_places
from hostile_place import keep_place, make_place, run_form

from transduce.config import BERTConfig, GPTConfig, RNNConfig, TrainingConfig, TransformerConfig, ViTConfig

NONE = ("ten", "", "٣٣", "nan", "-inf", "-1", "1e-320", "0", "1_0", " 5", "0x10", "1,5", "\x1b[31m5")
HUGE = ("99999999999999999999", "2147483648", "1e308", "inf", "9" * 5000)
# Numbers that mean work for years. A command may begin with it.
WORK = {"--steps", "--epochs", "--minutes", "--count", "--lines"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    yield from keep_place(make_place(tmp_path_factory.mktemp("place")))


def is_work(option: str, value: str) -> bool:
    """Tell whether a number is legal, but a command would work on it for long."""
    try:
        return option in WORK and 2 < float(value) < 1e300
    except ValueError:
        return False


NUMBER_PLACES = [where for where in number_places() if where.command not in (*SLOW, "import")]


@pytest.mark.parametrize("values", [NONE, HUGE], ids=["none", "huge"])
@pytest.mark.parametrize("where", thin_out(NUMBER_PLACES, 10), ids=str)
def test_a_hostile_number_in_an_option(place, tmp_path, where, values):
    problems = {}
    for value in values:
        if not is_work(where.option, value):
            done = run_form(where.form(value), place, tmp_path / "out", apart=values is HUGE)
            problems[repr(value[:30])] = problems_of(
                done, codes=(0, 1, 2) if where.command == "check" else (0, 2)
            )
    assert_no_problem(problems)


@pytest.mark.slow
@pytest.mark.parametrize("where", [where for where in number_places() if where.command in SLOW], ids=str)
def test_a_hostile_number_in_a_command_that_takes_long(place, tmp_path, where):
    problems = {}
    for value in ("ten", "nan", "-1", "0", *(HUGE if where.command == "plan" else ("inf",))):
        done = run_form(where.form(value), place, tmp_path / "out", apart=True)
        problems[repr(value[:30])] = problems_of(done)
    assert_no_problem(problems)


FAMILIES = {
    TransformerConfig: ("train", "transformer.toml"),
    RNNConfig: ("train", "rnn.toml"),
    GPTConfig: ("lm train", "gpt.toml"),
    BERTConfig: ("mlm train", "bert.toml"),
    ViTConfig: ("vision train", "vit.toml"),
}
SETTINGS = [
    *((*form, f"model.{name}") for config, form in FAMILIES.items() for name in config.model_fields),
    *(
        (*FAMILIES[config], f"training.{name}")
        for config in (TransformerConfig, ViTConfig)
        for name in TrainingConfig.model_fields
    ),
]
# In the syntax of TOML; the second ones may be legal, and want a lot
REFUSED = ("-1", "nan", "inf", "-inf", '"ten"', "[]", "{}", "[1, -1]", "1979-05-27", '"\\u001b[31m"')
DOUBTFUL = ("0", "true", "1e-320", "1000000", "2147483648", "1e308", "99999999999999999999")
DURATION = ("training.steps", "training.minutes")


def form_with(command: str, config: str, key: str) -> dict[str, str]:
    """Return a valid command whose training does not last long, whatever this setting is."""
    form = {**FORMS[command], "--config": config}
    if key in DURATION:
        form.pop("--steps")
    return form


@pytest.mark.parametrize(("command", "config", "key"), thin_out(SETTINGS, 25))
def test_a_hostile_number_in_a_setting(place, tmp_path, command, config, key):
    problems = {}
    for value in (*REFUSED, *DOUBTFUL):
        if value == "1000000" and key in (*DURATION, "model.d_ff", "model.d_k", "model.d_v"):  # it takes long
            continue
        words = arguments_of(command, {**form_with(command, config, key), "--set": f"{key}={value}"})
        done = run_form(words, place, tmp_path / "out", apart=value in DOUBTFUL)
        problems[value] = problems_of(done, is_report=True)
    assert_no_problem(problems)


RUN_FILES = [
    *("[model]\nencoder_layers = 10000000", "[model]\nd_model = 99999999999999999999", "[model]\nheads = 0"),
    *(
        "[model]\nd_model = 1000000\nheads = 1000000",
        "[training]\nlearning_rate = nan",
        "[training]\nsteps = inf",
    ),
    *(
        "[training]\nsteps = 0",
        "[training]\nminutes = -1",
        "[training]\nepochs = 1",
        "[training]\nsteps = 1e3",
    ),
    *("[training]\nseed = 99999999999999999999", "[training]\nmax_tokens = 0", "[training]\nkeep = -1"),
    *("[model.attention]\nkind = 3", '[model.attention]\nkind = "window"\nsize = 0', "[data]\nx = 1"),
]


@pytest.mark.parametrize("content", RUN_FILES)
def test_a_hostile_number_in_a_run_file_is_refused(place, tmp_path, content):
    (tmp_path / "run.toml").write_text(content)
    form = {**FORMS["train"], "--config": str(tmp_path / "run.toml")}
    done = run_form(arguments_of("train", form), place, tmp_path / "out", apart=True)
    assert problems_of(done, codes=(2,), is_report=True) == []


HOSTILE_SETTINGS = [
    *(
        "model",
        "model.",
        ".heads",
        "=",
        "model.heads",
        "model.heads=",
        "a.b.c.d=1",
        "model.heads.x=1",
        "model=1",
    ),
    *("training.steps=1\nseed=2", "model.\x1b[31m=1", "model.heads=\x1b[31m", "training.freeze=[1]"),
    *("model.heads=" + "[" * 100_000, "model.heads=" + "9" * 100_000, "model." * 10_000 + "heads=1"),
    "x" * 100_000,
]


@pytest.mark.parametrize("setting", HOSTILE_SETTINGS, ids=lambda setting: repr(setting[:20]))
@pytest.mark.parametrize("command", thin_out(["train", "lm train", "mlm train", "vision train"], 4))
def test_a_hostile_setting_is_refused(place, tmp_path, command, setting):
    done = run_form(arguments_of(command, {**FORMS[command], "--set": setting}), place, tmp_path / "out")
    assert problems_of(done, codes=(2,)) == []
