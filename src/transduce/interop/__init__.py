"""One module for each outside format: two-way tables in which every key is used."""
