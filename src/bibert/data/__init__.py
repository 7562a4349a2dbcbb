"""Text, labelled or not: reading it, checking it, augmenting it, batching it; only `encoding` needs torch."""

MOST_CHARACTERS = 100_000  # of a text are read; what follows could not fit into an input
MAX_LENGTH = 128  # tokens of a text, unless a recipe says otherwise
