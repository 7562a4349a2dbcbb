/* The C API of the bibert engine: it computes the logits of a packed model. docs/c-api.md has an example.
 *
 * The library reads no files. It takes the data section of a packed file (docs/packed-format.md), checks it, and keeps
 * its own copy. A model is immutable, so any number of threads may use one at the same time. No function aborts on bad
 * input: it returns a status, and bibert_last_error() in the same thread describes the problem in one line. */
#ifndef BIBERT_H
#define BIBERT_H

#include <stddef.h>
#include <stdint.h>

#if defined(BIBERT_DLL) /* while the library itself is compiled for Windows */
#define BIBERT_API __declspec(dllexport)
#elif defined(_WIN32)
#define BIBERT_API
#else
#define BIBERT_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Increases whenever a struct or a signature below changes. */
#define BIBERT_ABI_VERSION 3

typedef enum bibert_status {
  BIBERT_OK = 0,
  BIBERT_BAD_ARGUMENT = 1, /* a null pointer, an id outside the vocabulary, a sequence that is too long */
  BIBERT_BAD_MODEL = 2,    /* the config is out of range, or the data does not fit it */
  BIBERT_OUT_OF_RANGE = 3, /* a value left the range of the numeric contract; impossible with files of bibert pack */
  BIBERT_NO_MEMORY = 4,
  BIBERT_NO_ISA = 5, /* this CPU or this build does not have the requested instruction set */
  BIBERT_FAILURE = 6 /* any other error */
} bibert_status;

/* The signs that have a threshold per channel, in the order of the file. With 2 or 4 bits, all sites have edges. */
enum {
  BIBERT_THRESHOLD_ATTENTION_INPUT = 1 << 0,
  BIBERT_THRESHOLD_QUERY = 1 << 1,
  BIBERT_THRESHOLD_KEY = 1 << 2,
  BIBERT_THRESHOLD_VALUE = 1 << 3,
  BIBERT_THRESHOLD_CONTEXT = 1 << 4,
  BIBERT_THRESHOLD_FFN_INPUT = 1 << 5,
  BIBERT_THRESHOLD_FFN_HIDDEN = 1 << 6,
  BIBERT_THRESHOLD_POOLER_INPUT = 1 << 7
};

/* The levels of the input of the second FFN layer: -1 and 1, or those from 0 up. */
enum { BIBERT_FFN_SIGN = 0, BIBERT_FFN_BOOL = 1 };

/* With 2 or 4 activation bits, `thresholds` and `score_thresholds` are 0 and `ffn_levels` is BIBERT_FFN_BOOL. */
typedef struct bibert_config {
  uint32_t layers;           /* 1 to 48 */
  uint32_t hidden;           /* 1 to 4096 */
  uint32_t heads;            /* 1 to 256; heads * head_size is at most 4096 */
  uint32_t head_size;        /* 1 to 64 */
  uint32_t intermediate;     /* 1 to 16384 */
  uint32_t vocabulary;       /* 1 to 1048576 */
  uint32_t positions;        /* 1 to 8192 */
  uint32_t token_types;      /* 1 to 64 */
  uint32_t labels;           /* 1 to 65536 */
  uint32_t thresholds;       /* the BIBERT_THRESHOLD_... that are present */
  uint32_t score_thresholds; /* 1 if every head has a score threshold, else 0 */
  uint32_t ffn_levels;       /* BIBERT_FFN_SIGN or BIBERT_FFN_BOOL */
  double norm_eps;           /* above 0, at most 1 */
  uint32_t activation_bits;  /* of the inputs of linear layers: 1, 2 or 4 */
  uint32_t attention_bits;   /* of queries, keys, values and attention weights: 1, 2 or 4; 1 iff activation_bits is 1 */
} bibert_config;

/* Sequences of tokens, concatenated without padding. */
typedef struct bibert_batch {
  uint32_t sequences;
  const uint32_t* lengths;    /* of each sequence in tokens, 1 to `positions` of the config */
  const int32_t* ids;         /* of all tokens */
  const int32_t* token_types; /* of all tokens; NULL for all 0 */
  const int32_t* positions;   /* of all tokens; NULL for 0, 1, 2, ... in each sequence */
} bibert_batch;

typedef struct bibert_model bibert_model;

/* The version the library was built with; compare it with BIBERT_ABI_VERSION. */
BIBERT_API uint32_t bibert_abi_version(void);

/* Describes the last failed call of this thread. Valid until its next call. */
BIBERT_API const char* bibert_last_error(void);

/* The size in bytes of the data section without the tokenizer; 0 if the config is out of range. */
BIBERT_API uint64_t bibert_data_size(const bibert_config* config);

/* Checks the data and creates a model; `data` may be freed afterwards. `isa` is the instruction set to use, one of
 * bibert_available_isas(). If it is NULL, the environment variable BIBERT_ISA chooses, or else the CPU's best is used.
 */
BIBERT_API bibert_status bibert_model_create(const bibert_config* config, const void* data, uint64_t size,
                                             const char* isa, bibert_model** model);

/* Frees a model, which no thread may be using; NULL is allowed. */
BIBERT_API void bibert_model_destroy(bibert_model* model);

/* The instruction set the model runs on. */
BIBERT_API const char* bibert_model_isa(const bibert_model* model);

/* Computes sequences * labels logits on at most `threads` threads; 0 means one per CPU that the calling thread may use.
 * The result does not depend on the number of threads. Scores are the softmax of logits / the file's temperature. */
BIBERT_API bibert_status bibert_logits(const bibert_model* model, const bibert_batch* batch, uint32_t threads,
                                       float* logits);

/* The attention weights of a batch of one sequence of T tokens, for programs that show them: layers * heads * T * T
 * bytes, rows of a query's weights of all keys, from 0 to 2^attention_bits - 1. Takes longer than the logits. */
BIBERT_API bibert_status bibert_attention(const bibert_model* model, const bibert_batch* batch, uint8_t* weights);

/* The instruction sets that this build has and this CPU supports, best first, for example "avx2 reference". */
BIBERT_API const char* bibert_available_isas(void);

#ifdef __cplusplus
}
#endif

#endif
