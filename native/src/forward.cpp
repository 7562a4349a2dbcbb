// The forward pass over groups of sequences. A group has about as many tokens as fit in the cache with their
// activations; it passes all layers before the next group starts. Two optimizations keep the result exact: there are no
// padding tokens, and the last layer computes only the first token of each sequence. bit_steps.h and level_steps.h have
// the steps for 1 bit, and for 2 and 4 bits.
#include "forward.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "bit_steps.h"
#include "level_steps.h"
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

  Block block() const { return {row, length}; }
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

// Why a model has no result; impossible with files made by bibert pack, which stay in range for every text.
enum class Fault { kNone, kNorm, kLogit };

// The threads that work on a group, and their memory.
template <class Steps>
struct Team {
  ThreadPool& pool;
  size_t threads;
  typename Steps::Scratch* scratch;  // one for each thread
};

// Runs one group through the layers. Rows are the tokens of its sequences, concatenated; in the last layer, only the
// first tokens.
template <class Steps>
class Pass {
 public:
  using Rows = typename Steps::Rows;
  using Scratch = typename Steps::Scratch;

  Pass(const Model& model, const bibert_batch& batch, const Group& group, Rows& rows, const Team<Steps>& team)
      : model_(model), batch_(batch), group_(group), states_(rows.states.data()), steps_(model, rows), team_(team) {}

  // Writes the logits of its sequences to their places in the batch.
  Fault run(float* logits) {
    embed_sequences();
    const auto& layers = Steps::layers(model_);
    for (size_t i = 0; i + 1 < layers.size(); ++i) run_layer(layers[i]);
    run_last_layer(layers.back());
    if (fault_ == Fault::kNone) read_out(logits);
    return fault_;
  }

  // Writes the attention weights of its only sequence, of every layer.
  Fault watch(uint8_t* weights) {
    embed_sequences();
    const size_t bytes = model_.config.heads * group_.rows * group_.rows;
    for (const auto& layer : Steps::layers(model_)) {
      run_layer(layer);  // queries and keys stay until the next layer
      steps_.weigh(layer, {0, group_.rows}, weights);
      weights += bytes;
    }
    return fault_;
  }

 private:
  template <class Task>  // task(block, scratch)
  void for_blocks(size_t rows, const Task& task) {
    const size_t share = std::max(ceil_div(rows, team_.threads), kLeastRows);
    const size_t size = std::min(ceil_div(rows, ceil_div(rows, std::min(share, kMaxRows))), rows);
    team_.pool.run(ceil_div(rows, size), team_.threads, [&](size_t i, size_t worker) {
      task(Block{i * size, std::min(size, rows - i * size)}, team_.scratch[worker]);
    });
  }

  float* states_of(size_t row) { return states_ + row * padded(model_.config.hidden); }

  void embed_sequences() {
    team_.pool.run(group_.sequences.size(), team_.threads, [&](size_t i, size_t) {
      const Sequence& sequence = group_.sequences[i];
      for (size_t t = 0; t < sequence.length; ++t) {
        const size_t token = sequence.token + t;
        const int32_t type = batch_.token_types != nullptr ? batch_.token_types[token] : 0;
        const int32_t position = batch_.positions != nullptr ? batch_.positions[token] : static_cast<int32_t>(t);
        embed(model_, batch_.ids[token], type, position, states_of(sequence.row + t));
      }
    });
    for_blocks(group_.rows, [&](Block block, Scratch&) {
      if (!steps_.normalize(model_.embeddings.norm, block)) fault_ = Fault::kNorm;
    });
  }

  template <class Layer>
  void run_layer(const Layer& layer) {
    for_blocks(group_.rows, [&](Block block, Scratch& scratch) { steps_.project_all(layer, block, scratch); });
    attend_all(layer);
    finish(layer, group_.rows);
  }

  template <class Layer>
  void run_last_layer(const Layer& layer) {
    for_blocks(group_.rows,
               [&](Block block, Scratch& scratch) { steps_.project_keys_and_values(layer, block, scratch); });
    // After this, row i is the first token of sequence i.
    const size_t sequences = group_.sequences.size();
    for (size_t i = 0; i < sequences; ++i) steps_.copy_row(group_.sequences[i].row, i);
    for_blocks(sequences, [&](Block block, Scratch& scratch) { steps_.project_queries(layer, block, scratch); });
    team_.pool.run(sequences, team_.threads, [&](size_t i, size_t worker) {
      steps_.attend(layer, {i, 1}, group_.sequences[i].block(), team_.scratch[worker]);
    });
    finish(layer, sequences);
  }

  // Every thread computes all heads of its share of the queries of each sequence, so a row of the context has one
  // writer.
  template <class Layer>
  void attend_all(const Layer& layer) {
    const size_t shares = team_.threads;
    team_.pool.run(group_.sequences.size() * shares, team_.threads, [&](size_t task, size_t worker) {
      const Sequence& sequence = group_.sequences[task / shares];
      const size_t first = sequence.length * (task % shares) / shares;
      const size_t end = sequence.length * (task % shares + 1) / shares;
      if (first == end) return;
      steps_.attend(layer, {sequence.row + first, end - first}, sequence.block(), team_.scratch[worker]);
    });
  }

  template <class Layer>
  void finish(const Layer& layer, size_t rows) {
    for_blocks(rows, [&](Block block, Scratch& scratch) {
      if (!steps_.finish(layer, block, scratch)) fault_ = Fault::kNorm;
    });
  }

  void read_out(float* logits) {
    for_blocks(group_.sequences.size(), [&](Block block, Scratch& scratch) {
      steps_.pool(block, scratch);
      for (size_t row = block.first; row < block.first + block.count; ++row) {
        const size_t number = group_.sequences[row].number;
        if (!classify(model_, states_of(row), logits + number * model_.config.labels)) fault_ = Fault::kLogit;
      }
    });
  }

  const Model& model_;
  const bibert_batch& batch_;
  const Group& group_;
  float* const states_;
  Steps steps_;
  const Team<Steps> team_;
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
                                       "; the model has diverged: pack it again, which checks its range");
}

// Allocates all memory before the first layer and on the caller's thread, where a failure can be reported.
template <class Steps>
void run_groups(const Model& model, ThreadPool& pool, const bibert_batch& batch, size_t threads, float* logits) {
  const std::vector<Sequence> sequences = sequences_of(batch);
  const std::vector<Group> groups = make_groups(sequences);
  size_t most_rows = 0;
  for (const Group& group : groups) most_rows = std::max(most_rows, group.rows);
  // Groups are independent; threads share a group only if there are fewer groups than threads.
  threads = std::min(threads, kMostThreads);
  const bool share = groups.size() < threads;
  const size_t inside = share ? std::min(threads, ceil_div(most_rows, kLeastRows)) : 1;
  const size_t outside = share ? 1 : threads;
  std::vector<typename Steps::Rows> rows;
  std::vector<typename Steps::Scratch> scratch;
  for (size_t i = 0; i < outside; ++i) rows.emplace_back(model, most_rows);
  for (size_t i = 0; i < std::max(inside, outside); ++i) {
    scratch.emplace_back(model, std::min(most_rows, kMaxRows), most_rows);
  }
  std::atomic<bool> diverged{false};
  const auto run_group = [&](const Group& group, size_t worker) {
    const Team<Steps> team{pool, inside, &scratch[worker]};
    const Fault fault = Pass<Steps>(model, batch, group, rows[worker], team).run(logits);
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

template <class Steps>
void watch_sequence(const Model& model, ThreadPool& pool, const bibert_batch& batch, uint8_t* weights) {
  Group group;
  group.add(sequences_of(batch).front());
  typename Steps::Rows rows(model, group.rows);
  typename Steps::Scratch scratch(model, std::min(group.rows, kMaxRows), group.rows);
  const Fault fault = Pass<Steps>(model, batch, group, rows, {pool, 1, &scratch}).watch(weights);
  if (fault != Fault::kNone) throw_diverged(0, fault);
}

}  // namespace

void compute_attention(const Model& model, ThreadPool& pool, const bibert_batch& batch, uint8_t* weights) {
  check_batch(model.config, batch);
  (model.config.activation_bits == 1 ? watch_sequence<BitSteps> : watch_sequence<LevelSteps>)(model, pool, batch,
                                                                                              weights);
}

void compute_logits(const Model& model, ThreadPool& pool, const bibert_batch& batch, size_t threads, float* logits) {
  check_batch(model.config, batch);
  (model.config.activation_bits == 1 ? run_groups<BitSteps> : run_groups<LevelSteps>)(model, pool, batch, threads,
                                                                                      logits);
}

}  // namespace bibert
