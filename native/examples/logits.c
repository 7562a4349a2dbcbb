/* Prints the logits of sst2.bibert for one sequence: logits FILE. `bibert inspect --json` prints the config. */
#include <bibert.h>
#include <stdio.h>
#include <stdlib.h>

static const bibert_config config = {.layers = 6, .hidden = 384, .heads = 12, .head_size = 32, .intermediate = 1536,
                                     .vocabulary = 30522, .positions = 512, .token_types = 2, .labels = 2,
                                     .norm_eps = 1e-12, .thresholds = 0xFF, /* all eight of BIBERT_THRESHOLD_... */
                                     .score_thresholds = 1, .ffn_levels = BIBERT_FFN_BOOL,
                                     .activation_bits = 1, .attention_bits = 1};

int main(int count, char** arguments) {
  const int32_t ids[] = {101, 1037, 9882, 2143, 102}; /* [CLS] a gorgeous film [SEP] */
  const uint32_t length = 5;
  const bibert_batch batch = {.sequences = 1, .lengths = &length, .ids = ids};
  const uint64_t size = bibert_data_size(&config);
  uint64_t header = 0; /* its length is in the first 8 bytes, little-endian */
  char* data = malloc(size);
  FILE* file = count == 2 ? fopen(arguments[1], "rb") : NULL;
  if (data == NULL || file == NULL || fread(&header, 8, 1, file) != 1 || fseek(file, (long)header, SEEK_CUR) != 0 ||
      fread(data, 1, size, file) != size) {
    fprintf(stderr, "cannot read the model\n");
    return 1;
  }
  bibert_model* model = NULL;
  float logits[2];
  if (bibert_model_create(&config, data, size, NULL, &model) != BIBERT_OK ||
      bibert_logits(model, &batch, 1, logits) != BIBERT_OK) {
    fprintf(stderr, "%s\n", bibert_last_error());
    return 1;
  }
  printf("%.9g %.9g\n", (double)logits[0], (double)logits[1]);
  return 0; /* a longer program would free data, close file, and call bibert_model_destroy */
}
