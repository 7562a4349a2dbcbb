/* A classifier for small computers: device FILE reads one sequence of token ids per line on one thread with little
 * memory, and prints the label, the logits and the milliseconds. The model is sst2.bibert, whose config is a constant.
 *
 * The file is mapped, not read: the library copies what it needs, and the system takes the pages back. Linked with the
 * static library, the program needs no other file; docs/c-api.md has the commands and the memory it takes. */
#define _POSIX_C_SOURCE 200809L
#include <bibert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

enum { MOST_TOKENS = 512 };

static const bibert_config config = {.layers = 6, .hidden = 384, .heads = 12, .head_size = 32, .intermediate = 1536,
                                     .vocabulary = 30522, .positions = MOST_TOKENS, .token_types = 2, .labels = 2,
                                     .norm_eps = 1e-12, .thresholds = 0xFF, .score_thresholds = 1,
                                     .ffn_levels = BIBERT_FFN_BOOL, .activation_bits = 1, .attention_bits = 1};

static bibert_model* load(const char* path) {
  const int file = open(path, O_RDONLY);
  struct stat about;
  if (file < 0 || fstat(file, &about) != 0 || about.st_size < 8) return NULL;
  const size_t size = (size_t)about.st_size;
  const unsigned char* bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (bytes == MAP_FAILED) return NULL;
  uint64_t start = 0; /* of the data: after 8 bytes with the length of the header, and the header */
  for (int i = 7; i >= 0; --i) start = start << 8 | bytes[i];
  bibert_model* model = NULL;
  const uint64_t needed = bibert_data_size(&config);
  if (start < size - 8 && needed <= size - 8 - start) {
    bibert_model_create(&config, bytes + 8 + start, needed, NULL, &model);
  }
  munmap((void*)bytes, size);
  return model;
}

int main(int count, char** arguments) {
  bibert_model* model = count == 2 ? load(arguments[1]) : NULL;
  if (model == NULL) {
    fprintf(stderr, "device: usage: device sst2.bibert < ids %s\n", bibert_last_error());
    return 1;
  }
  static char line[MOST_TOKENS * 8];
  static int32_t ids[MOST_TOKENS];
  while (fgets(line, sizeof(line), stdin) != NULL) {
    uint32_t length = 0;
    char *next = line, *end = NULL;
    for (long id = strtol(next, &end, 10); end != next && length < MOST_TOKENS; id = strtol(next = end, &end, 10)) {
      ids[length++] = (int32_t)id;
    }
    const bibert_batch batch = {.sequences = 1, .lengths = &length, .ids = ids};
    struct timespec before, after;
    float logits[2];
    clock_gettime(CLOCK_MONOTONIC, &before);
    if (bibert_logits(model, &batch, 1, logits) != BIBERT_OK) {
      fprintf(stderr, "device: %s\n", bibert_last_error());
      return 1;
    }
    clock_gettime(CLOCK_MONOTONIC, &after);
    const double ms = 1e3 * (double)(after.tv_sec - before.tv_sec) + 1e-6 * (double)(after.tv_nsec - before.tv_nsec);
    printf("%d %.9g %.9g %.1f ms\n", logits[1] > logits[0], (double)logits[0], (double)logits[1], ms);
  }
  bibert_model_destroy(model);
#ifdef __GLIBC__
  malloc_stats(); /* on standard error: the most that was allocated */
#endif
  return 0;
}
