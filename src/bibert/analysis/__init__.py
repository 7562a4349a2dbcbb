"""What the paper says about a scheme and what arithmetic says: printed figures, sizes and FLOPs; no torch here."""
