"""Distillation: the loss terms between student and teacher, and their weighted sum."""
