/* Classifies one sequence of token ids with a packed model: classify FILE ID... prints one logit per line.
 *
 * A packed file has 8 bytes with the length of the header, the header, and the data section (docs/packed-format.md).
 * The header has a single valid spelling, so a text search finds the config without a JSON parser; the library then
 * checks the config and the data. This program does not check the digest in the header. */
#include <bibert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char* what) {
  fprintf(stderr, "classify: %s\n", what);
  exit(1);
}

/* The text after \"name\": in the config, which is JSON inside a JSON string. */
static const char* value(const char* config, const char* name) {
  char key[40];
  snprintf(key, sizeof(key), "\\\"%s\\\":", name);
  const char* found = strstr(config, key);
  return found != NULL ? found + strlen(key) : "";
}

static uint32_t number(const char* config, const char* name) {
  return (uint32_t)strtoul(value(config, name), NULL, 10);
}

static bibert_config read_config(char* header) {
  static const char* const sites[] = {"attention_input", "query",     "key",        "value",
                                      "context",         "ffn_input", "ffn_hidden", "pooler_input"};
  char* text = strstr(header, "\"config\":\"{");
  char* end = text != NULL ? strchr(text, '}') : NULL;
  if (end == NULL) fail("the file is not a packed model");
  *end = '\0';
  bibert_config config = {
      .layers = number(text, "layers"),
      .hidden = number(text, "hidden"),
      .heads = number(text, "heads"),
      .head_size = number(text, "head_size"),
      .intermediate = number(text, "intermediate"),
      .vocabulary = number(text, "vocabulary"),
      .positions = number(text, "positions"),
      .token_types = number(text, "token_types"),
      .labels = number(text, "labels"),
      .score_thresholds = value(text, "score_thresholds")[0] == 't',
      .ffn_levels = strncmp(value(text, "ffn_levels"), "\\\"bool", 6) == 0 ? BIBERT_FFN_BOOL : BIBERT_FFN_SIGN,
      .norm_eps = strtod(value(text, "norm_eps"), NULL),
      .activation_bits = number(text, "activation_bits"),
      .attention_bits = number(text, "attention_bits"),
  };
  if (config.activation_bits == 0) config.activation_bits = config.attention_bits = 1; /* files of version 1 */
  for (int i = 0; i < 8; ++i) {
    char site[40];
    snprintf(site, sizeof(site), "\\\"%s\\\"", sites[i]);
    if (strstr(value(text, "thresholds"), site) != NULL) config.thresholds |= 1U << i;
  }
  return config;
}

/* The next bytes of a file in new memory, with a 0 after them. */
static void* read_bytes(FILE* file, uint64_t size) {
  char* bytes = calloc(size + 1, 1);
  if (bytes == NULL) fail("not enough memory");
  if (fread(bytes, 1, size, file) != size) fail("the file is truncated");
  return bytes;
}

int main(int count, char** arguments) {
  if (count < 3) fail("usage: classify FILE ID...");
  FILE* file = fopen(arguments[1], "rb");
  if (file == NULL) fail("cannot open the file");
  unsigned char* length = read_bytes(file, 8);
  uint64_t header_size = 0;
  for (int i = 7; i >= 0; --i) header_size = header_size << 8 | length[i];
  if (header_size > 1 << 20) fail("the file is not a packed model");
  char* header = read_bytes(file, header_size);
  const bibert_config config = read_config(header);
  const uint64_t size = bibert_data_size(&config);
  if (size == 0) fail(bibert_last_error());
  void* data = read_bytes(file, size); /* the tokenizer follows in the file */
  fclose(file);

  bibert_model* model = NULL;
  if (bibert_model_create(&config, data, size, NULL, &model) != BIBERT_OK) fail(bibert_last_error());
  free(length);
  free(header);
  free(data); /* the model has its own copy */

  const uint32_t tokens = (uint32_t)count - 2;
  int32_t* ids = calloc(tokens, sizeof(*ids));
  float* logits = calloc(config.labels, sizeof(*logits));
  if (ids == NULL || logits == NULL) fail("not enough memory");
  for (uint32_t i = 0; i < tokens; ++i) ids[i] = (int32_t)strtol(arguments[i + 2], NULL, 10);
  const bibert_batch batch = {.sequences = 1, .lengths = &tokens, .ids = ids};
  if (bibert_logits(model, &batch, 0, logits) != BIBERT_OK) fail(bibert_last_error());
  for (uint32_t i = 0; i < config.labels; ++i) printf("%.9g\n", (double)logits[i]);

  free(ids);
  free(logits);
  bibert_model_destroy(model);
  return 0;
}
