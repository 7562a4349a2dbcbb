"""The packed file, the contract between the torch half and the torch-free half: bits, schema, header, file."""
