"""Training: recipes, the teacher's fine-tuning, the student's distillation, checkpoints, evaluation."""
