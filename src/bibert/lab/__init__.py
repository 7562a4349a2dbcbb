"""The laboratory: the paper's figures, cost on paper, the inside of models, and rival engines."""
