"""Other programs' formats, one module each: two-way tables in which every tensor must be used."""
