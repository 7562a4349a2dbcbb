// Bi-Attention of a sequence: two binary products per head, with keys and values packed as weights.
//
// Scores: a query attends to a key iff they have few enough mismatches. Context (BAMM): if a are the keys a query
// attends to and v the bits of a channel over the keys, then
//     2 · popcount(a & v) - popcount(a) = popcount(v) - popcount(a ^ v),
// which is a count of mismatches too. So linear_bits of the kernels computes both signs with integer comparisons.
#ifndef BIBERT_ATTENTION_H
#define BIBERT_ATTENTION_H

#include "model.h"

namespace bibert {

// The queries, keys, values and contexts of a sequence, in rows of inner() bits.
struct HeadRows {
  const uint64_t* queries;
  const uint64_t* keys;
  const uint64_t* values;
  size_t query_count;
  size_t key_count;
  uint64_t* contexts;
};

// Scratch memory for one head at a time.
class AttentionScratch {
 public:
  AttentionScratch(const Model& model, size_t most_keys);

  void attend(const Model& model, const Layer& layer, const HeadRows& rows);

 private:
  void make_weights(const Model& model, const Layer& layer, const HeadRows& rows, size_t head);
  void attend_block(const Model& model, const HeadRows& rows, size_t first_query, size_t count, size_t head);

  Buffer<uint64_t> words_;     // one word per query or key: its bits in the head
  Buffer<uint64_t> channels_;  // rows of words_for(keys): the values of the head, transposed
  Buffer<uint64_t> attended_;  // rows of words_for(keys)
  Buffer<uint64_t> contexts_;  // one word per query
  Buffer<uint8_t> key_panels_, value_panels_, query_tiles_, attended_tiles_;
  Buffer<int32_t> most_of_key_, most_of_channel_;
};

}  // namespace bibert

#endif
