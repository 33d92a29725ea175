"""Dates in many languages → ISO 8601."""

import datetime
import random
from collections.abc import Iterator

from transduce.errors import DependencyError

LOCALES = (
    "en", "en_GB", "de", "fr", "es", "it", "pt", "nl", "sv", "da", "nb", "fi", "pl", "cs", "hu", "ro", "bg",
    "ru", "uk", "el", "tr", "ja", "zh", "ko", "vi", "id", "ar", "he", "hi",
)  # fmt: skip
# With and without the day of the week, long and short. Numbers alone only where they are written one way:
# 2/1/2020 is in February or in January, depending on who wrote it. For the same reason Croatian is not here:
# its listopada is October, and Polish has the same word for November.
FORMATS = ("full", "long", "medium", "EEE, d MMM y", "d MMMM y", "MMMM y, d", "y/MM/dd")
FIRST, LAST = datetime.date(1950, 1, 1), datetime.date(2049, 12, 31)


def date_pairs(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """A date as people write it, and the same as ``2020-02-01``."""
    try:
        from babel.dates import format_date
    except ImportError:
        raise DependencyError(
            "dates need Babel, which is not installed", "run: pip install 'transduce[demo]'"
        ) from None
    generator = random.Random(seed)
    days = (LAST - FIRST).days
    for _ in range(count):
        date = FIRST + datetime.timedelta(generator.randint(0, days))
        yield format_date(date, generator.choice(FORMATS), generator.choice(LOCALES)), date.isoformat()
