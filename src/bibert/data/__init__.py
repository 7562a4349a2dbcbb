"""Labelled text: reading it, checking it, augmenting it, batching it."""
