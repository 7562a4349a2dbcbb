"""Training: recipes, fine-tuning the teacher, distilling the student, checkpoints, evaluation."""
