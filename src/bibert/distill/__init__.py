"""Distillation: what a student is told by its teacher, term by term."""
