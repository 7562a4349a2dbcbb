"""Labelled text: reading it, checking it, augmenting it, batching it."""

MAX_LENGTH = 128  # tokens of a text, unless a recipe says otherwise
