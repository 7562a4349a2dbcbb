"""The paper's analysis: what it prints, what arithmetic says, and what is inside a model."""
