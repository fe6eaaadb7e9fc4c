#include "executor/torch/rank_evaluation.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <type_traits>
#include <utility>

#include <c10/util/Exception.h>

#include "executor/processes/exchange.h"
#include "executor/torch/mailboxes.h"
#include "executor/torch/rank_records.h"

namespace xpipe::executor::nn {

namespace {

template <typename T>
std::string to_text(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

template <typename T>
ir::Result<T> from_text(const ir::Result<std::string>& text) {
  if (!text.ok()) {
    return text.error();
  }
  T value{};
  if (text.value().size() != sizeof(T)) {
    return ir::make_error(ir::ErrorKind::Runtime, "bad-frame", "",
                          "a message of " + std::to_string(text.value().size()) +
                              " bytes where one of " + std::to_string(sizeof(T)) + " was expected");
  }
  std::memcpy(&value, text.value().data(), sizeof(T));
  return value;
}

/// The tensors of `producers`, by producer.
ir::Status receive_tensors(Peers& peers,
                           std::uint32_t from,
                           const std::vector<std::size_t>& producers,
                           std::map<std::size_t, torch::Tensor>& made) {
  const ir::Result<Parcel> parcel = peers.receive(from);
  if (!parcel.ok()) {
    return parcel.status();
  }
  const std::vector<PackedTensor>& tensors = parcel.value().tensors;
  if (tensors.size() != producers.size()) {
    return ir::make_error(ir::ErrorKind::Runtime, "bad-frame", "",
                          "a batch of " + std::to_string(tensors.size()) +
                              " tensors where one of " + std::to_string(producers.size()) +
                              " was expected");
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    ir::Result<torch::Tensor> tensor = unpack(tensors[i]);
    if (!tensor.ok()) {
      return tensor.status();
    }
    made.insert_or_assign(producers[i], std::move(tensor).value());
  }
  return {};
}

Parcel packed(const std::map<std::size_t, torch::Tensor>& made,
              const std::vector<std::size_t>& producers) {
  Parcel parcel;
  parcel.tensors.reserve(producers.size());
  for (const std::size_t producer : producers) {
    parcel.tensors.push_back(pack(made.at(producer)));
  }
  return parcel;
}

/// Takes one batch through this rank's stages.
class BatchWay {
 public:
  BatchWay(Peers& peers, const StageOwners& owners, const std::vector<Stage*>& stages)
      : peers_(peers), owners_(owners), stages_(stages) {
    std::vector<StageWiring> wiring;
    wiring.reserve(stages.size());
    for (const Stage* stage : stages) {
      wiring.push_back(stage->wiring());
    }
    read_from_.reserve(stages.size());
    for (std::size_t k = 0; k < stages.size(); ++k) {
      read_from_.push_back(read_from(wiring, k));
    }
  }

  [[nodiscard]] std::uint32_t last_rank() const { return owners_.back(); }

  [[nodiscard]] bool holds_first() const { return owners_.front() == peers_.rank(); }

  [[nodiscard]] bool holds_last() const { return last_rank() == peers_.rank(); }

  /// The last stage's output, on the rank that holds it; undefined elsewhere.
  ir::Result<torch::Tensor> run(const torch::Tensor& input) {
    std::map<std::size_t, torch::Tensor> made{{kModelInput, input}};
    for (std::size_t k = 0; k < stages_.size(); ++k) {
      if (owners_[k] != peers_.rank()) {
        continue;
      }
      if (k > 0 && owners_[k - 1] != peers_.rank()) {
        if (ir::Status came = receive_tensors(peers_, owners_[k - 1], read_from_[k], made);
            !came.ok()) {
          return came.error();
        }
      }
      evaluate_stage(*stages_[k], made);
      if (k + 1 < stages_.size() && owners_[k + 1] != peers_.rank()) {
        if (ir::Status sent = peers_.send(owners_[k + 1], packed(made, read_from_[k + 1]));
            !sent.ok()) {
          return sent.error();
        }
      }
    }
    return holds_last() ? made.at(stages_.back()->wiring().exports.back()) : torch::Tensor();
  }

 private:
  Peers& peers_;
  const StageOwners& owners_;
  const std::vector<Stage*>& stages_;
  std::vector<std::vector<std::size_t>> read_from_;  ///< by stage: what comes with a batch
};

}  // namespace

ir::Result<Evaluation> evaluate_over_ranks(Peers& peers,
                                           const StageOwners& owners,
                                           const std::vector<Stage*>& stages,
                                           const SampleSource& samples,
                                           LossKind loss) {
  const std::uint32_t count = samples.count();
  BatchWay way(peers, owners, stages);
  EvaluationSums sums;
  try {
    const torch::NoGradGuard no_grad;
    std::uint32_t batches = 0;
    for (std::uint32_t begin = 0; begin < count; begin += kEvaluationBatch) {
      const std::vector<std::uint32_t> numbers = evaluation_batch(begin, count);
      torch::Tensor input;
      if (way.holds_first()) {
        ir::Result<torch::Tensor> batch = samples.input_batch(0, numbers);
        if (!batch.ok()) {
          return batch.error();
        }
        input = std::move(batch).value();
      }
      const ir::Result<torch::Tensor> output = way.run(input);
      if (!output.ok()) {
        return output.error();
      }
      if (way.holds_last()) {
        add_batch(sums, output.value(), samples.label_batch(numbers), loss);
      }
      // The first stage must not run away from the last one.
      if (++batches % kBatchesAhead == 0) {
        if (const auto word = broadcast_from(peers, way.last_rank(), "on"); !word.ok()) {
          return word.error();
        }
      }
    }
  } catch (const c10::Error& error) {
    return ir::make_error(ir::ErrorKind::Runtime, "torch-failed", "evaluation",
                          error.what_without_backtrace());
  }
  const Evaluation mine = way.holds_last() ? mean_of(sums) : Evaluation{};
  return from_text<Evaluation>(broadcast_from(peers, way.last_rank(), to_text(mine)));
}

ir::Result<std::uint64_t> weights_hash_over_ranks(Peers& peers,
                                                  const StageOwners& owners,
                                                  const std::vector<Stage*>& stages) {
  std::uint64_t hash = kEmptyHash;
  std::uint32_t holder = owners.front();
  for (std::size_t k = 0; k < stages.size(); ++k) {
    const std::uint32_t owner = owners[k];
    if (owner != holder) {
      if (peers.rank() == holder) {
        if (ir::Status sent = peers.send(owner, parcel_of(to_text(hash))); !sent.ok()) {
          return sent.error();
        }
      } else if (peers.rank() == owner) {
        const ir::Result<Parcel> parcel = peers.receive(holder);
        const ir::Result<std::uint64_t> so_far =
            from_text<std::uint64_t>(parcel.ok() ? ir::Result<std::string>(bytes_of(parcel.value()))
                                                 : ir::Result<std::string>(parcel.error()));
        if (!so_far.ok()) {
          return so_far.error();
        }
        hash = so_far.value();
      }
      holder = owner;
    }
    if (owner == peers.rank()) {
      hash = weights_hash(*stages[k], hash);
    }
  }
  return from_text<std::uint64_t>(broadcast_from(peers, holder, to_text(hash)));
}

}  // namespace xpipe::executor::nn
