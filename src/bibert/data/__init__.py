"""Text, labelled or not: reading it, checking it, augmenting it, batching it; only `encoding` needs torch."""

MAX_LENGTH = 128  # tokens of a text, unless a recipe says otherwise
