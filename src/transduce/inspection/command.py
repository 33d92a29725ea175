"""What ``transduce inspect`` does: a sentence, or all heads over a corpus."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console

from transduce import artifact
from transduce.decoding.translator import Translator
from transduce.errors import ConfigError
from transduce.inspection.capture import inspect as inspect_sentence
from transduce.inspection.head_table import heads_of, print_heads, write_json
from transduce.inspection.heat_map import write_heat_map
from transduce.inspection.output_files import keep, keep_apart
from transduce.models.transformer import Transformer

PAGE = Path("inspection.html")


def inspect(
    model: Path,
    sentence: str | None,
    target: str | None,
    out: Path | None,
    png: Path | None,
    layer: int | None,
    beam: int | None,
    corpus: tuple[Path, Path] | None,
    limit: int | None,
    json: Path | None,
) -> Iterator[Path]:
    """Gives each file as soon as it is written."""
    of_sentence = {"--target": target, "--out": out, "--png": png, "--layer": layer, "--beam": beam}
    of_corpus = {"--limit": limit, "--json": json}
    if corpus and sentence is not None:
        raise ConfigError("both a sentence and --corpus were given", "give one of them")
    if corpus:
        _refuse(of_sentence, "goes with a sentence, not with --corpus")
        keep(json, "JSON", *corpus)
        yield from _inspect_heads(model, *corpus, limit or 200, json)
        return
    if sentence is None:
        raise ConfigError("nothing to inspect was given", "give a sentence, or --corpus SOURCE TARGET")
    _refuse(of_corpus, "goes with --corpus, not with a sentence")
    if layer is not None and png is None:
        raise ConfigError("--layer is for the picture", "add --png FILE")
    page = out or (None if png else PAGE)
    keep_apart(page, png)
    keep(page, "page")
    keep(png, "picture")
    found = inspect_sentence(Translator.load(model, precision="float32", beam=beam or 4), sentence, target)
    if page:
        found.save(page)
        yield page
    if png:
        write_heat_map(found, png, layer, warn=Console(stderr=True).print)
        yield png


def _inspect_heads(model: Path, source: Path, target: Path, limit: int, json: Path | None) -> Iterator[Path]:
    messages, output = Console(stderr=True), Console()
    output = output if output.is_terminal else Console(width=120)
    transformer = artifact.load(model)
    if not isinstance(transformer, Transformer):
        raise ConfigError(
            f"{model} is of family {transformer.config.family!r}, which has no heads", "give a transformer"
        )
    found = heads_of(transformer, artifact.load_tokenizer(model), source, target, limit, messages)
    print_heads(found, output)
    if json:
        write_json(found, json)
        yield json


def _refuse(options: Mapping[str, object], why: str) -> None:
    if given := [name for name, value in options.items() if value is not None]:
        raise ConfigError(f"{given[0]} {why}", "leave it out")
