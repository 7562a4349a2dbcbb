// Bi-Attention; attention.h derives the formulas.
#include "attention.h"

#include <algorithm>

#include "ops.h"

namespace bibert {

AttentionScratch::AttentionScratch(const Model& model, size_t most_keys)
    : words_(padded(most_keys)),
      channels_(kWordBits * words_for(most_keys)),
      attended_(kMaxRows * words_for(most_keys)),
      contexts_(kMaxRows),
      key_panels_(model.kernels->panel_bytes(most_keys, model.config.head_size)),
      value_panels_(model.kernels->panel_bytes(model.config.head_size, most_keys)),
      query_tiles_(model.kernels->tile_bytes(kMaxRows, model.config.head_size)),
      attended_tiles_(model.kernels->tile_bytes(kMaxRows, most_keys)),
      most_of_key_(padded(most_keys)),
      most_of_channel_(kWordBits) {}

void AttentionScratch::attend(const Model& model, const Layer& layer, const HeadRows& rows) {
  std::fill_n(rows.contexts, rows.query_count * words_for(model.inner()), 0);
  for (size_t head = 0; head < model.config.heads; ++head) {
    make_weights(model, layer, rows, head);
    for (size_t q = 0; q < rows.query_count; q += kMaxRows) {
      attend_block(model, rows, q, std::min(kMaxRows, rows.query_count - q), head);
    }
  }
}

// Packs the keys of a head, and its values by channel, as weights with thresholds.
void AttentionScratch::make_weights(const Model& model, const Layer& layer, const HeadRows& rows, size_t head) {
  const size_t keys = rows.key_count;
  const size_t words = words_for(keys);
  const size_t head_size = model.config.head_size;
  take_head(model, rows.keys, keys, head, words_.data());
  model.kernels->pack_panels(words_.data(), keys, head_size, key_panels_.data());
  std::fill_n(most_of_key_.data(), keys, layer.most_mismatches[head]);
  std::fill(most_of_key_.data() + keys, most_of_key_.data() + padded(keys), -1);

  take_head(model, rows.values, keys, head, words_.data());
  std::fill(words_.data() + keys, words_.data() + padded(keys), 0);
  const int32_t* minimum = layer.context_minimum.data() + head * kWordBits;
  std::transform(minimum, minimum + kWordBits, most_of_channel_.data(), [](int32_t least) { return -least; });
  for (size_t w = 0; w < words; ++w) {
    uint64_t* block = words_.data() + w * kWordBits;
    model.kernels->transpose(block, most_of_channel_.data());
    for (size_t d = 0; d < head_size; ++d) channels_[d * words + w] = block[d];
  }
  model.kernels->pack_panels(channels_.data(), head_size, keys, value_panels_.data());
}

void AttentionScratch::attend_block(const Model& model, const HeadRows& rows, size_t first_query, size_t count,
                                    size_t head) {
  const Kernels& kernels = *model.kernels;
  const size_t head_size = model.config.head_size;
  const size_t stride = words_for(model.inner());
  take_head(model, rows.queries + first_query * stride, count, head, words_.data());
  kernels.pack_tiles(words_.data(), count, head_size, query_tiles_.data());
  kernels.linear_bits({key_panels_.data(), query_tiles_.data(), count, rows.key_count, head_size}, most_of_key_.data(),
                      attended_.data());
  kernels.pack_tiles(attended_.data(), count, rows.key_count, attended_tiles_.data());
  kernels.linear_bits({value_panels_.data(), attended_tiles_.data(), count, head_size, rows.key_count},
                      most_of_channel_.data(), contexts_.data());
  for (size_t q = 0; q < count; ++q) {
    put_bits(rows.contexts + (first_query + q) * stride, head * head_size, head_size, contexts_[q]);
  }
}

}  // namespace bibert
