// The cheap parts of a forward pass in plain C++: embedding, moving heads in and out of rows, the float head. The
// expensive parts are in kernels.h.
#ifndef BIBERT_OPS_H
#define BIBERT_OPS_H

#include "model.h"

namespace bibert {

// The sum of the three embeddings of a token; the row has padded(hidden) entries.
void embed(const Model& model, int32_t id, int32_t token_type, int32_t position, float* row);

// The bits [first, first + count) of a row as one word; count is at most 64.
uint64_t take_bits(const uint64_t* row, size_t first, size_t count);

// Sets the bits [first, first + count) of a row, which must be 0; `bits` is below 2^count.
void put_bits(uint64_t* row, size_t first, size_t count, uint64_t bits);

// The bits of a head, one word per row, from rows of inner() bits.
void take_head(const Model& model, const uint64_t* rows, size_t count, size_t head, uint64_t* words);

// tanh of the pooled row, then the classifier, in float64, each rounded once; overwrites `pooled`. False if a logit is
// not finite.
bool classify(const Model& model, float* pooled, float* logits);

}  // namespace bibert

#endif
