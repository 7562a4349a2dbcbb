"""The network: binarizers, layers, attention, one BERT for teacher and students, and the table of schemes."""
