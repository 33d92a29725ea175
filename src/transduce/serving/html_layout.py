def html_layout(text, language, **options):
    raise NotImplementedError
