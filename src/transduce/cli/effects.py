"""Options that were given but would have no effect: refused, or named if a run is resumed.

Functions in Python see values only. On the command line an option counts as given even if its value is the
default.
"""

from typing import Any

from transduce.cli.errors import warn
from transduce.errors import ConfigError


def check_effects(context: Any) -> None:
    """Refuse options of a command that have no effect together with its other options."""
    parameters = context.params
    given = [name for name in parameters if context.get_parameter_source(name).name == "COMMANDLINE"]
    if "temperature" in parameters:
        _check_sampling(given, parameters)
    if parameters.get("resume") and (parameters["out"] / "run.toml").exists():
        _name_ignored(context, given)


def _check_sampling(given: list[str], parameters: dict[str, Any]) -> None:
    from transduce.decoding.settings import FOR_BEAM_SEARCH, FOR_SAMPLING

    with_option = "sample" in parameters  # otherwise texts are sampled unless --beam is given
    samples = parameters["sample"] if with_option else parameters["beam"] is None
    for name in given:
        if name not in (FOR_BEAM_SEARCH if samples else FOR_SAMPLING):
            continue
        option = f"--{name.replace('_', '-')}"
        if with_option:
            reason = f"{'with' if samples else 'without'} --sample"
        else:
            reason = f"{'without' if samples else 'with'} --beam"
        raise ConfigError(f"{option} has no effect {reason}", f"leave {option} out")


def _name_ignored(context: Any, given: list[str]) -> None:
    """Name given options that have their default values; the session names those with other values."""
    from transduce.runs.train import USED_BY_RESUME

    defaults = {parameter.name: parameter for parameter in context.command.params}
    for name in given:
        parameter = defaults[name]
        if name not in USED_BY_RESUME and context.params[name] == parameter.get_default(context):
            warn(f"{parameter.opts[0]} has no effect on a resumed run")
