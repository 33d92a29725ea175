"""Dates in many languages → ISO 8601."""

import datetime
import random
from collections.abc import Iterator

from transduce.errors import require_babel

LOCALES = (
    "en", "en_GB", "de", "fr", "es", "it", "pt", "nl", "sv", "da", "nb", "fi", "pl", "cs", "hu", "ro", "bg",
    "ru", "uk", "el", "tr", "ja", "zh", "ko", "vi", "id", "ar", "he", "hi",
)  # fmt: skip
# With and without the day of the week, long and short. Only unambiguous formats have numbers alone: 2/1/2020
# is in February or in January, depending on the writer. Croatian is left out for the same reason: its
# "listopada" means October, and in Polish November.
FORMATS = ("full", "long", "medium", "EEE, d MMM y", "d MMMM y", "MMMM y, d", "y/MM/dd")
FIRST, LAST = datetime.date(1950, 1, 1), datetime.date(2049, 12, 31)


def date_pairs(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield random dates as people write them, and in ISO 8601: ``2020-02-01``."""
    require_babel()
    from babel.dates import format_date

    generator = random.Random(seed)
    days = (LAST - FIRST).days
    for _ in range(count):
        date = FIRST + datetime.timedelta(generator.randint(0, days))
        yield format_date(date, generator.choice(FORMATS), generator.choice(LOCALES)), date.isoformat()
