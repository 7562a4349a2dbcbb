"""Files of texts and what a packed model says of them: rows stream in, rows with labels stream out. No torch."""
