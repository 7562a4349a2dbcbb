// Bi-Attention of a sequence, as two binary products for each head, whose weights are made on the way.
//
// Scores: the mismatches of queries and keys; a query attends to a key iff there are few enough of them. Context: for
// the bits a of a query's keys and the bits v of a channel over the keys,
//     2 · popcount(a & v) - popcount(a) = popcount(v) - popcount(a ^ v),
// so BAMM too is a count of mismatches, and both signs are integer compares of the kernels' linear_bits.
#ifndef BIBERT_ATTENTION_H
#define BIBERT_ATTENTION_H

#include "model.h"

namespace bibert {

// Rows of inner() bits: where the queries, keys and values of a sequence are, and where its context goes.
struct HeadRows {
  const uint64_t* queries;
  const uint64_t* keys;
  const uint64_t* values;
  size_t query_count;
  size_t key_count;
  uint64_t* contexts;
};

// The memory of one head at a time.
class AttentionScratch {
 public:
  AttentionScratch(const Model& model, size_t most_keys);

  void attend(const Model& model, const Layer& layer, const HeadRows& rows);

 private:
  void make_weights(const Model& model, const Layer& layer, const HeadRows& rows, size_t head);
  void attend_block(const Model& model, const HeadRows& rows, size_t first_query, size_t count, size_t head);

  Buffer<uint64_t> words_;     // one word per query or key: its bits of the head
  Buffer<uint64_t> channels_;  // rows of words_for(keys): the values of the head, turned over
  Buffer<uint64_t> attended_;  // rows of words_for(keys)
  Buffer<uint64_t> contexts_;  // one word per query
  Buffer<uint8_t> key_panels_, value_panels_, query_tiles_, attended_tiles_;
  Buffer<int32_t> most_of_key_, most_of_channel_;
};

}  // namespace bibert

#endif
