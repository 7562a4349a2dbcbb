// The forward pass over groups of sequences. A group has about as many tokens as fit in the cache with their
// activations; it passes all layers before the next group starts. Three optimizations keep the result exact: there are
// no padding tokens, values of which only the sign is used are never computed as floats, and the last layer computes
// only the first token of each sequence.
#include "forward.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "attention.h"
#include "ops.h"

namespace bibert {
namespace {

constexpr size_t kGroupRows = 128;  // the most rows of a group, unless a single sequence has more
constexpr size_t kLeastRows = 8;    // a smaller block of rows is not worth a thread

size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

struct Sequence {
  size_t number;  // in the batch
  size_t token;   // its first token in the batch
  size_t row;     // its first row in the group
  size_t length;
};

struct Group {
  size_t rows = 0;
  std::vector<Sequence> sequences;

  void add(Sequence sequence) {
    sequence.row = rows;
    sequences.push_back(sequence);
    rows += sequence.length;
  }
};

std::vector<Sequence> sequences_of(const bibert_batch& batch) {
  std::vector<Sequence> sequences;
  size_t token = 0;
  for (size_t i = 0; i < batch.sequences; ++i) {
    sequences.push_back({i, token, 0, batch.lengths[i]});
    token += batch.lengths[i];
  }
  return sequences;
}

// Long sequences first, so that no thread starts a long one when the others are done.
std::vector<Group> make_groups(std::vector<Sequence> sequences) {
  std::sort(sequences.begin(), sequences.end(), [](const Sequence& a, const Sequence& b) {
    return a.length != b.length ? a.length > b.length : a.number < b.number;
  });
  std::vector<Group> groups;
  for (const Sequence& sequence : sequences) {
    if (groups.empty() || groups.back().rows + sequence.length > kGroupRows) groups.emplace_back();
    groups.back().add(sequence);
  }
  return groups;
}

// Why a diverged model has no result.
enum class Fault { kNone, kNorm, kLogit };

// The memory of a group: one row per token.
struct Activations {
  Activations(const Model& model, size_t rows)
      : states(rows * padded(model.config.hidden)),
        bits(rows * words_for(model.config.hidden)),
        queries(rows * words_for(model.inner())),
        keys(rows * words_for(model.inner())),
        values(rows * words_for(model.inner())),
        contexts(rows * words_for(model.inner())) {}

  Buffer<float> states;   // the residual stream
  Buffer<uint64_t> bits;  // its signs
  Buffer<uint64_t> queries, keys, values, contexts;
};

// The memory of one worker: a block of rows in the layout of the kernels, the FFN's hidden bits, the heads.
struct Scratch {
  Scratch(const Model& model, size_t most_rows, size_t most_keys)
      : tiles(std::max(model.kernels->tile_bytes(most_rows, std::max<size_t>(model.config.hidden, model.inner())),
                       model.kernels->tile_bytes(most_rows, model.config.intermediate))),
        inside(most_rows * words_for(model.config.intermediate)),
        attention(model, most_keys) {}

  Buffer<uint8_t> tiles;
  Buffer<uint64_t> inside;
  AttentionScratch attention;
};

// The threads that work on a group, and their memory.
struct Team {
  ThreadPool& pool;
  size_t threads;
  Scratch* scratch;  // one for each thread
};

// Runs one group through the layers. Rows are the tokens of its sequences, concatenated; in the last layer, only the
// first tokens.
class Pass {
 public:
  Pass(const Model& model, const bibert_batch& batch, const Group& group, Activations& rows, const Team& team)
      : model_(model),
        kernels_(*model.kernels),
        batch_(batch),
        group_(group),
        at_(rows),
        team_(team),
        hidden_(model.config.hidden),
        inner_(model.inner()),
        wide_(model.config.intermediate) {}

  // Writes the logits of its sequences to their places in the batch.
  Fault run(float* logits) {
    embed_sequences();
    for (size_t i = 0; i + 1 < model_.layers.size(); ++i) run_layer(model_.layers[i]);
    run_last_layer(model_.layers.back());
    if (fault_ == Fault::kNone) read_out(logits);
    return fault_;
  }

 private:
  template <class Task>  // task(first row, rows, scratch) for blocks of rows
  void for_blocks(size_t rows, const Task& task) {
    const size_t share = std::max(ceil_div(rows, team_.threads), kLeastRows);
    const size_t size = std::min(ceil_div(rows, ceil_div(rows, std::min(share, kMaxRows))), rows);
    team_.pool.run(ceil_div(rows, size), team_.threads, [&](size_t i, size_t worker) {
      task(i * size, std::min(size, rows - i * size), team_.scratch[worker]);
    });
  }

  void embed_sequences() {
    team_.pool.run(group_.sequences.size(), team_.threads, [&](size_t i, size_t) {
      const Sequence& sequence = group_.sequences[i];
      for (size_t t = 0; t < sequence.length; ++t) {
        const size_t token = sequence.token + t;
        const int32_t type = batch_.token_types != nullptr ? batch_.token_types[token] : 0;
        const int32_t position = batch_.positions != nullptr ? batch_.positions[token] : static_cast<int32_t>(t);
        embed(model_, batch_.ids[token], type, position, at_.states.data() + (sequence.row + t) * padded(hidden_));
      }
    });
    for_blocks(group_.rows,
               [&](size_t first, size_t rows, Scratch&) { normalize(model_.embeddings.norm, first, rows); });
  }

  void run_layer(const Layer& layer) {
    for_blocks(group_.rows, [&](size_t first, size_t rows, Scratch& scratch) {
      pack_hidden(first, rows, scratch);
      project(layer.query, first, rows, scratch, at_.queries);
      project(layer.key, first, rows, scratch, at_.keys);
      project(layer.value, first, rows, scratch, at_.values);
    });
    attend_all(layer);
    for_blocks(group_.rows, [&](size_t first, size_t rows, Scratch& scratch) { finish(layer, first, rows, scratch); });
  }

  void run_last_layer(const Layer& layer) {
    for_blocks(group_.rows, [&](size_t first, size_t rows, Scratch& scratch) {
      pack_hidden(first, rows, scratch);
      project(layer.key, first, rows, scratch, at_.keys);
      project(layer.value, first, rows, scratch, at_.values);
    });
    keep_first_rows();
    const size_t sequences = group_.sequences.size();
    for_blocks(sequences, [&](size_t first, size_t rows, Scratch& scratch) {
      pack_hidden(first, rows, scratch);
      project(layer.query, first, rows, scratch, at_.queries);
    });
    team_.pool.run(sequences, team_.threads,
                   [&](size_t i, size_t worker) { attend(layer, group_.sequences[i], i, 1, team_.scratch[worker]); });
    for_blocks(sequences, [&](size_t first, size_t rows, Scratch& scratch) { finish(layer, first, rows, scratch); });
  }

  // After this, row i is the first token of sequence i.
  void keep_first_rows() {
    for (size_t i = 0; i < group_.sequences.size(); ++i) {
      const size_t from = group_.sequences[i].row;
      float* states = at_.states.data();
      uint64_t* bits = at_.bits.data();
      std::copy_n(states + from * padded(hidden_), padded(hidden_), states + i * padded(hidden_));
      std::copy_n(bits + from * words_for(hidden_), words_for(hidden_), bits + i * words_for(hidden_));
    }
  }

  void pack_hidden(size_t first, size_t rows, Scratch& scratch) {
    kernels_.pack_tiles(at_.bits.data() + first * words_for(hidden_), rows, hidden_, scratch.tiles.data());
  }

  static Product product(const Matrix& matrix, const Scratch& scratch, size_t rows) {
    return {matrix.panels.data(), scratch.tiles.data(), rows, matrix.outputs, matrix.inputs};
  }

  void project(const SignLinear& linear, size_t first, size_t rows, const Scratch& scratch, Buffer<uint64_t>& out) {
    kernels_.linear_bits(product(linear.matrix, scratch, rows), linear.most_mismatches.data(),
                         out.data() + first * words_for(inner_));
  }

  // Every thread computes all heads of its share of the queries of each sequence, so a row of the context has one
  // writer.
  void attend_all(const Layer& layer) {
    const size_t shares = team_.threads;
    team_.pool.run(group_.sequences.size() * shares, team_.threads, [&](size_t task, size_t worker) {
      const Sequence& sequence = group_.sequences[task / shares];
      const size_t first = sequence.length * (task % shares) / shares;
      const size_t end = sequence.length * (task % shares + 1) / shares;
      if (first < end) attend(layer, sequence, sequence.row + first, end - first, team_.scratch[worker]);
    });
  }

  void attend(const Layer& layer, const Sequence& sequence, size_t query_row, size_t query_count, Scratch& scratch) {
    const size_t stride = words_for(inner_);
    scratch.attention.attend(model_, layer,
                             {at_.queries.data() + query_row * stride, at_.keys.data() + sequence.row * stride,
                              at_.values.data() + sequence.row * stride, query_count, sequence.length,
                              at_.contexts.data() + query_row * stride});
  }

  // Everything after the heads: output projection and FFN, each with residual and LayerNorm.
  void finish(const Layer& layer, size_t first, size_t rows, Scratch& scratch) {
    kernels_.pack_tiles(at_.contexts.data() + first * words_for(inner_), rows, inner_, scratch.tiles.data());
    add(layer.attention_output, first, rows, scratch);
    normalize(layer.attention_norm, first, rows);
    pack_hidden(first, rows, scratch);
    kernels_.linear_bits(product(layer.intermediate.matrix, scratch, rows), layer.intermediate.most_mismatches.data(),
                         scratch.inside.data());
    kernels_.pack_tiles(scratch.inside.data(), rows, wide_, scratch.tiles.data());
    add(layer.output, first, rows, scratch);
    normalize(layer.output_norm, first, rows);
  }

  // states = linear(tiles) + states
  void add(const FloatLinear& linear, size_t first, size_t rows, const Scratch& scratch) {
    float* states = at_.states.data() + first * padded(hidden_);
    kernels_.linear_floats(product(linear.matrix, scratch, rows),
                           {linear.scale.data(), linear.bias.data(), linear.base.data(), linear.step, states}, states);
  }

  void normalize(const Norm& norm, size_t first, size_t rows) {
    float* states = at_.states.data() + first * padded(hidden_);
    if (!kernels_.layer_norm({states, norm.weight.data(), norm.bias.data(), norm.minimum.data(), model_.config.norm_eps,
                              rows, hidden_, states, at_.bits.data() + first * words_for(hidden_)})) {
      fault_ = Fault::kNorm;
    }
  }

  void read_out(float* logits) {
    const FloatLinear& pooler = model_.pooler;
    for_blocks(group_.sequences.size(), [&](size_t first, size_t rows, Scratch& scratch) {
      pack_hidden(first, rows, scratch);
      float* pooled = at_.states.data() + first * padded(hidden_);
      kernels_.linear_floats(product(pooler.matrix, scratch, rows),
                             {pooler.scale.data(), pooler.bias.data(), pooler.base.data(), pooler.step, nullptr},
                             pooled);
      for (size_t r = 0; r < rows; ++r) {
        const size_t number = group_.sequences[first + r].number;
        if (!classify(model_, pooled + r * padded(hidden_), logits + number * model_.config.labels)) {
          fault_ = Fault::kLogit;
        }
      }
    });
  }

  const Model& model_;
  const Kernels& kernels_;
  const bibert_batch& batch_;
  const Group& group_;
  Activations& at_;
  const Team team_;
  const size_t hidden_, inner_, wide_;
  std::atomic<Fault> fault_{Fault::kNone};
};

struct Place {
  size_t sequence, token;  // the token's number in its sequence
};

void check_range(const char* what, int64_t value, uint32_t count, Place at) {
  if (value >= 0 && value < count) return;
  throw Error(BIBERT_BAD_ARGUMENT, "sequence " + std::to_string(at.sequence) + ", token " + std::to_string(at.token) +
                                       ": " + what + " is " + std::to_string(value) + ", must be from 0 to " +
                                       std::to_string(count - 1));
}

void check_batch(const bibert_config& config, const bibert_batch& batch) {
  for (size_t i = 0; i < batch.sequences; ++i) {
    if (batch.lengths[i] < 1 || batch.lengths[i] > config.positions) {
      throw Error(BIBERT_BAD_ARGUMENT, "sequence " + std::to_string(i) + ": has " + std::to_string(batch.lengths[i]) +
                                           " tokens, must have 1 to " + std::to_string(config.positions));
    }
  }
  size_t at = 0;
  for (size_t i = 0; i < batch.sequences; ++i) {
    for (size_t token = 0; token < batch.lengths[i]; ++token, ++at) {
      check_range("the id", batch.ids[at], config.vocabulary, {i, token});
      if (batch.token_types != nullptr)
        check_range("the token type", batch.token_types[at], config.token_types, {i, token});
      if (batch.positions != nullptr) check_range("the position", batch.positions[at], config.positions, {i, token});
    }
  }
}

[[noreturn]] void throw_diverged(size_t sequence, Fault fault) {
  const std::string limit = std::to_string(static_cast<int>(kLayerNormLimit));
  throw Error(BIBERT_OUT_OF_RANGE, "sequence " + std::to_string(sequence) + ": " +
                                       (fault == Fault::kLogit ? "a logit is not finite"
                                                               : "an input of a LayerNorm is not inside +-" + limit) +
                                       "; the model has diverged: train it with a lower learning rate");
}

}  // namespace

// Allocates all memory before the first layer and on the caller's thread, where a failure can be reported.
void compute_logits(const Model& model, ThreadPool& pool, const bibert_batch& batch, size_t threads, float* logits) {
  check_batch(model.config, batch);
  const std::vector<Sequence> sequences = sequences_of(batch);
  const std::vector<Group> groups = make_groups(sequences);
  size_t most_rows = 0;
  for (const Group& group : groups) most_rows = std::max(most_rows, group.rows);
  // Groups are independent; threads share a group only if there are fewer groups than threads.
  threads = std::min(threads, kMostThreads);
  const bool share = groups.size() < threads;
  const size_t inside = share ? std::min(threads, ceil_div(most_rows, kLeastRows)) : 1;
  const size_t outside = share ? 1 : threads;
  std::vector<Activations> activations;
  std::vector<Scratch> scratch;
  for (size_t i = 0; i < outside; ++i) activations.emplace_back(model, most_rows);
  for (size_t i = 0; i < std::max(inside, outside); ++i) {
    scratch.emplace_back(model, std::min(most_rows, kMaxRows), most_rows);
  }
  std::atomic<bool> diverged{false};
  const auto run_group = [&](const Group& group, size_t worker) {
    const Fault fault = Pass(model, batch, group, activations[worker], {pool, inside, &scratch[worker]}).run(logits);
    if (fault != Fault::kNone) diverged = true;
    return fault;
  };
  pool.run(groups.size(), outside, [&](size_t i, size_t worker) { run_group(groups[i], worker); });
  if (!diverged) return;
  // A sequence has the same values when it runs alone, so the first faulty one can be named.
  for (const Sequence& sequence : sequences) {
    Group alone;
    alone.add(sequence);
    const Fault fault = run_group(alone, 0);
    if (fault != Fault::kNone) throw_diverged(sequence.number, fault);
  }
  throw Error(BIBERT_FAILURE, "the batch has no result, but each of its sequences has one; report a bug");
}

}  // namespace bibert
