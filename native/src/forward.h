// The forward pass: token ids to logits.
#ifndef BIBERT_FORWARD_H
#define BIBERT_FORWARD_H

#include "model.h"
#include "thread_pool.h"

namespace bibert {

// Checks the batch (throws Error), then computes sequences * labels logits on at most `threads` threads.
void compute_logits(const Model& model, ThreadPool& pool, const bibert_batch& batch, size_t threads, float* logits);

// Checks the batch of one sequence, then computes the attention weights of all its layers: [layer][head][query][key].
void compute_attention(const Model& model, ThreadPool& pool, const bibert_batch& batch, uint8_t* weights);

}  // namespace bibert

#endif
