/* The logits of many sequences, for parity.py, on a processor that qemu emulates: logits_of < INPUT > LOGITS. The input
 * is what the C API takes, as bytes: config, size of the data, data, number of sequences, lengths, ids, token types. */
#include <bibert.h>
#include <stdio.h>
#include <stdlib.h>

static void* read_bytes(size_t size) {
  void* bytes = malloc(size);
  if (bytes == NULL || fread(bytes, 1, size, stdin) != size) {
    fprintf(stderr, "logits_of: the input is truncated\n");
    exit(1);
  }
  return bytes;
}

int main(void) {
  const bibert_config* config = read_bytes(sizeof(*config));
  const uint64_t* size = read_bytes(sizeof(*size));
  const void* data = read_bytes(*size);
  bibert_model* model = NULL;
  int status = bibert_model_create(config, data, *size, NULL, &model);
  const uint32_t* sequences = read_bytes(sizeof(*sequences));
  const uint32_t* lengths = read_bytes(*sequences * sizeof(*lengths));
  size_t tokens = 0;
  for (uint32_t i = 0; i < *sequences; ++i) tokens += lengths[i];
  const int32_t* ids = read_bytes(tokens * sizeof(*ids));
  const int32_t* types = read_bytes(tokens * sizeof(*types));
  float* logits = calloc(config->labels, sizeof(*logits));
  for (uint32_t i = 0; status == BIBERT_OK && i < *sequences; ++i) {
    const bibert_batch batch = {.sequences = 1, .lengths = lengths + i, .ids = ids, .token_types = types};
    status = bibert_logits(model, &batch, 1, logits);
    if (status == BIBERT_OK) fwrite(logits, sizeof(*logits), config->labels, stdout);
    ids += lengths[i];
    types += lengths[i];
  }
  if (status != BIBERT_OK) fprintf(stderr, "logits_of: %s\n", bibert_last_error());
  else fprintf(stderr, "%s\n", bibert_model_isa(model));
  return status;
}
