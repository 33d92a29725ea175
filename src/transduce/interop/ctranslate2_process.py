"""Run an exported model with the ``ctranslate2`` package, in a process of its own.

Which library computes int8 products is decided when that package is loaded, by the environment; and a model
that makes it fail ends only this process. Requests come on standard input and answers go to standard output,
one line of JSON each; the first line says what to load. Tokens are texts.
"""

import json
import sys
from typing import Any


def answer(translator: Any, request: dict[str, Any]) -> Any:
    """Score pairs of sources and targets, or translate sources."""
    if "targets" in request:
        found = translator.score_batch(request["sources"], request["targets"], max_input_length=0)
        return [result.log_probs for result in found]
    results = translator.translate_batch(
        request["sources"],
        target_prefix=request["prefixes"],
        beam_size=request["beam"],
        length_penalty=request["length_penalty"],
        patience=50 if request["beam"] > 1 else 1,  # the search ends when nothing better can follow
        max_input_length=0,
        min_decoding_length=0,
        max_decoding_length=request["limit"],
        suppress_sequences=[[token] for token in request["suppressed"]],
        return_end_token=True,  # only then it counts as part of a target's length
    )
    return [result.hypotheses[0] for result in results]


def main() -> None:
    """Answer requests until there are no more."""
    import ctranslate2

    settings = json.loads(sys.stdin.readline())
    translator = ctranslate2.Translator(settings.pop("folder"), device="cpu", **settings)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(translator, json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
