"""Options that were given but would have no effect: refused, or named if a run is resumed.

Functions in Python see values only. On the command line an option counts as given even if its value is the
default.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from transduce.cli.errors import warn
from transduce.errors import ConfigError

Parameters = dict[str, Any]


class Rule(NamedTuple):
    """Options that have no effect in some cases."""

    options: tuple[str, ...]
    applies: Callable[[Parameters], object]  # whether this is such a case
    reason: str  # follows "has no effect"


_RULES = (
    Rule(("diversity",), lambda p: p.get("diverse_groups") == 1, "without --diverse-groups"),
    Rule(
        ("hold_out",),
        lambda p: p.get("valid") or p.get("valid_source") or p.get("valid_pairs"),
        "with validation files",
    ),
    Rule(("normalize",), lambda p: p.get("from_model"), "with --from"),
    Rule(
        ("beam", "length_penalty", "precision", "device", "source_language", "target_language"),
        lambda p: p.get("hypotheses") and not p.get("model") and not _is_folder(p.get("compare")),
        "without a model",
    ),
    Rule(
        ("sentencepiece",),
        lambda p: p.get("argos") is False and p.get("to") != "marian",
        "without --argos or --to marian",
    ),
)


def _is_folder(path: Any) -> bool:
    return path is not None and path.is_dir()


def check_effects(context: Any) -> None:
    """Refuse options of a command that have no effect together with its other options."""
    parameters = context.params
    given = [name for name in parameters if context.get_parameter_source(name).name == "COMMANDLINE"]
    for rule in _RULES:
        for name in given:
            if name in rule.options and rule.applies(parameters):
                raise _no_effect(name, rule.reason)
    if "temperature" in parameters:
        _check_sampling(given, parameters)
    if parameters.get("resume") and (parameters["out"] / "run.toml").exists():
        _name_ignored(context, given)


def _check_sampling(given: list[str], parameters: Parameters) -> None:
    from transduce.decoding.settings import FOR_BEAM_SEARCH, FOR_SAMPLING

    with_option = "sample" in parameters  # otherwise texts are sampled unless --beam is given
    samples = parameters["sample"] if with_option else parameters["beam"] is None
    for name in given:
        if name not in (FOR_BEAM_SEARCH if samples else FOR_SAMPLING):
            continue
        if with_option:
            reason = f"{'with' if samples else 'without'} --sample"
        else:
            reason = f"{'without' if samples else 'with'} --beam"
        raise _no_effect(name, reason)


def _no_effect(name: str, reason: str) -> ConfigError:
    option = f"--{name.replace('_language', '_lang').replace('_', '-')}"
    return ConfigError(f"{option} has no effect {reason}", f"leave {option} out")


def _name_ignored(context: Any, given: list[str]) -> None:
    """Name given options that have their default values; the session names those with other values."""
    from transduce.runs.train import USED_BY_RESUME

    defaults = {parameter.name: parameter for parameter in context.command.params}
    for name in given:
        parameter = defaults[name]
        if name not in USED_BY_RESUME and context.params[name] == parameter.get_default(context):
            warn(f"{parameter.opts[0]} has no effect on a resumed run")
