"""``transduce inspect``: a page about one sentence, or a table of all heads over a corpus."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console

from transduce import artifact
from transduce.decoding.translator import Translator
from transduce.engine.precision import for_inference
from transduce.errors import ConfigError
from transduce.inspection.capture import inspect as inspect_sentence
from transduce.inspection.head_table import examine_files, print_heads, write_json
from transduce.inspection.heat_map import write_heat_map
from transduce.inspection.output_files import check_output, require_different, write
from transduce.inspection.walk.data import walk_data
from transduce.inspection.walk.page import walk_page
from transduce.models.transformer import Transformer
from transduce.terminal import output_console

DEFAULT_PAGE = Path("inspection.html")
DEFAULT_BEAM, DEFAULT_PAIRS = 4, 200


def inspect(
    model: Path,
    sentence: str | None = None,
    *,
    target: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    out: Path | None = None,
    png: Path | None = None,
    layer: int | None = None,
    beam: int | None = None,
    corpus: tuple[Path, Path] | None = None,
    limit: int | None = None,
    json: Path | None = None,
    walk: bool = False,
    device: str = "auto",
) -> Iterator[Path]:
    """Inspect a sentence or, with ``corpus``, all heads; yield each file as soon as it is written.

    ``source_language`` and ``target_language`` are those of a model that has several. With ``walk``, the page
    follows the sentence through the model, number by number.
    """
    if corpus and sentence is not None:
        raise ConfigError("both a sentence and --corpus were given", "give one of them")
    if corpus:
        sentence_options = {"--target": target, "--out": out, "--png": png, "--layer": layer, "--beam": beam}
        sentence_options["--walk"] = walk or None
        _refuse(sentence_options, "needs a sentence instead of --corpus")
        check_output(json, "JSON file", *corpus)
        yield from _inspect_heads(
            *(model, source_language, target_language, *corpus), limit or DEFAULT_PAIRS, json, device
        )
        return
    if sentence is None:
        raise ConfigError("nothing to inspect was given", "give a sentence, or --corpus SOURCE TARGET")
    _refuse({"--limit": limit, "--json": json}, "needs --corpus instead of a sentence")
    if walk:
        _refuse({"--target": target, "--png": png, "--layer": layer}, "does not go with --walk")
    if layer is not None and png is None:
        raise ConfigError("--layer selects the layer of the image", "add --png FILE")
    page = out or (None if png else DEFAULT_PAGE)
    require_different(page, png)
    check_output(page, "HTML page")
    check_output(png, "PNG image")
    translator = Translator.load(
        model,
        beam=beam or DEFAULT_BEAM,
        precision="float32",
        device=device,
        source_language=source_language,
        target_language=target_language,
    )
    if page and walk:
        write(page, walk_page(walk_data(translator, sentence)))
        yield page
        return
    inspection = inspect_sentence(translator, sentence, target)
    if page:
        inspection.save(page)
        yield page
    if png:
        write_heat_map(inspection, png, layer, warn=Console(stderr=True).print)
        yield png


def _inspect_heads(
    model: Path,
    source_language: str | None,
    target_language: str | None,
    source: Path,
    target: Path,
    limit: int,
    json: Path | None,
    device: str,
) -> Iterator[Path]:
    transformer = for_inference(artifact.load(model), "float32", device)
    if not isinstance(transformer, Transformer):
        raise ConfigError(
            f"{model} is of family {transformer.config.family!r}, which has no attention heads",
            "give the folder of a transformer",
        )
    tokenizer = artifact.load_tokenizer(model).for_languages(source_language, target_language)
    report = examine_files(transformer, tokenizer, source, target, limit, Console(stderr=True))
    print_heads(report, output_console())
    if json:
        write_json(report, json)
        yield json


def _refuse(options: Mapping[str, object], reason: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise ConfigError(f"{name} {reason}", "leave it out")
