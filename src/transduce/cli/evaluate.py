"""``transduce evaluate``."""

from transduce.cli import evaluation_options as e
from transduce.cli import options as o
from transduce.data.text_files import MAX_LINE_BYTES


def evaluate(
    reference: e.Reference,
    model: e.Model = None,
    source: e.Source = None,
    hypotheses: e.Hypotheses = None,
    source_language: o.SourceLanguage = None,
    target_language: o.TargetLanguage = None,
    compare: e.Compare = None,
    alternatives: e.Alternatives = False,
    max_line_bytes: o.MaxLineBytes = MAX_LINE_BYTES,
    metric: e.Metrics = None,
    lowercase: e.Lowercase = False,
    tokenize: e.Tokenize = "13a",
    language: e.Language = None,
    comet_model: e.CometModel = "Unbabel/wmt22-comet-da",
    beam: o.Beam = 4,
    length_penalty: o.LengthPenalty = 0.6,
    precision: o.Precision = "auto",
    device: o.Device = "auto",
    output: e.Output = None,
    json: e.Json = False,
) -> None:
    """Translate a test set and score the translations; with --compare, test whether two systems differ.

    Example: transduce evaluate runs/en-de/final --source test.en --reference test.de
    """
    from transduce.evaluation.evaluate import evaluate as run
    from transduce.evaluation.evaluation_table import print_result, require_output
    from transduce.evaluation.metrics import DEFAULT_METRICS

    require_output()
    evaluation = run(
        model,
        reference=reference,
        source=source,
        hypotheses=hypotheses,
        compare_with=compare,
        alternatives=alternatives,
        metrics=metric or DEFAULT_METRICS,
        lowercase=lowercase,
        tokenize=tokenize,
        language=language,
        comet_model=comet_model,
        beam=beam,
        length_penalty=length_penalty,
        source_language=source_language,
        target_language=target_language,
        precision=precision,
        device=device,
        output=output,
    )
    print_result(evaluation, as_json=json)
