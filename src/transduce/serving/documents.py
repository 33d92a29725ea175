KINDS = (".txt",)


def read_document(name, content, language):
    raise NotImplementedError
