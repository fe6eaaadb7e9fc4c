// The fused prediction against its formula in double, and bit by bit against itself.
#include "executor/prediction_kernel.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "executor/prediction_launch.h"

namespace xpipe::tests {
namespace {

using executor::InstructionSet;
using executor::Number;
using executor::PredictedTensor;
using executor::PredictionChunk;
using executor::PredictionStep;
using executor::PredictionTypes;

constexpr std::array kSteps{PredictionStep::Copy, PredictionStep::Linear,
                            PredictionStep::Normalized};
constexpr std::array kTypes{PredictionTypes{Number::Float32, Number::Float32},
                            PredictionTypes{Number::Float32, Number::BFloat16},
                            PredictionTypes{Number::Float32, Number::Float16},
                            PredictionTypes{Number::Float64, Number::Float64}};

std::vector<InstructionSet> supported_sets() {
  std::vector<InstructionSet> sets;
  for (const InstructionSet set :
       {InstructionSet::Baseline, InstructionSet::Avx2, InstructionSet::Avx512}) {
    if (executor::is_supported(set)) {
      sets.push_back(set);
    }
  }
  return sets;
}

/// The value of a number as it lies in memory, by definition of its format.
double value_of(Number number, const void* at) {
  if (number == Number::Float64) {
    double value = 0.0;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  if (number == Number::Float32) {
    float value = 0.0F;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  if (number == Number::BFloat16) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  if (exponent == 31) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

/// Half a unit in the last place of a number of size 1.
double half_ulp(Number number) {
  switch (number) {
    case Number::Float64:
      return std::ldexp(1.0, -53);
    case Number::Float32:
      return std::ldexp(1.0, -24);
    case Number::BFloat16:
      return std::ldexp(1.0, -8);
    case Number::Float16:
      return std::ldexp(1.0, -11);
  }
  return 0.0;
}

/// Memory of one type that begins `skew` bytes after a boundary of 64.
class Numbers {
 public:
  Numbers(Number type, std::int64_t count, std::size_t skew = 0)
      : type_(type), skew_(skew), bytes_(static_cast<std::size_t>(count) * bytes_of(type)) {
    blocks_.resize((skew_ + bytes_) / sizeof(Block) + 2);
  }

  void set(std::int64_t i, double value) {
    if (type_ == Number::Float64) {
      std::memcpy(at(i), &value, sizeof(value));
    } else {
      const auto rounded = static_cast<float>(value);
      std::memcpy(at(i), &rounded, sizeof(rounded));
    }
  }

  [[nodiscard]] std::byte* at(std::int64_t i) {
    return reinterpret_cast<std::byte*>(blocks_.data()) + skew_ +
           static_cast<std::size_t>(i) * bytes_of(type_);
  }

  [[nodiscard]] double get(std::int64_t i) { return value_of(type_, at(i)); }

  [[nodiscard]] std::vector<std::byte> all() { return {at(0), at(0) + bytes_}; }

 private:
  struct alignas(64) Block {
    std::array<std::byte, 64> bytes;
  };

  Number type_;
  std::size_t skew_;
  std::size_t bytes_;
  std::vector<Block> blocks_;
};

/// One tensor with everything a prediction may read.
struct Case {
  Case(PredictionTypes of_types, PredictionStep step, std::int64_t count, std::size_t skew = 0)
      : types(of_types),
        weights(types.weights, count),
        direction(types.weights, count),
        squares(types.weights, count),
        slot(types.slot, count, skew) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto x = static_cast<double>(i);
      weights.set(i, std::sin(1.0 + x) * (i % 5 == 0 ? 1e-3 : 1.0));
      direction.set(i, std::cos(0.7 * x) * (i % 7 == 0 ? 1e-5 : 0.1));
      squares.set(i, i % 11 == 0 ? 0.0 : std::pow(0.1 * std::sin(0.3 * x), 2));
    }
    tensor = {.weights = weights.at(0),
              .direction = direction.at(0),
              .squares = squares.at(0),
              .into = slot.at(0),
              .count = count,
              .step = step,
              .rate = 0.0123,
              .epsilon = 1e-4,
              .decay = 0.0031};
  }

  void predict(InstructionSet set, std::int64_t chunk) {
    const std::vector<PredictedTensor> list{tensor};
    executor::predict_on_cpu(list, executor::prediction_chunks(list, chunk), types, set);
  }

  [[nodiscard]] double expected(std::int64_t i) {
    const double w = weights.get(i);
    switch (tensor.step) {
      case PredictionStep::Copy:
        return w;
      case PredictionStep::Linear:
        return w - tensor.rate * direction.get(i);
      case PredictionStep::Normalized:
        return w - tensor.rate * direction.get(i) / (std::sqrt(squares.get(i)) + tensor.epsilon) -
               tensor.decay * w;
    }
    return 0.0;
  }

  PredictionTypes types;
  Numbers weights;
  Numbers direction;
  Numbers squares;
  Numbers slot;
  PredictedTensor tensor;
};

TEST_CASE("fused prediction: equals the formula in double, to the rounding of each operation") {
  for (const PredictionTypes types : kTypes) {
    for (const PredictionStep step : kSteps) {
      Case c(types, step, 4099);
      c.predict(executor::best_instruction_set(), 1000);
      for (std::int64_t i = 0; i < c.tensor.count; ++i) {
        const double w = c.weights.get(i);
        const double expected = c.expected(i);
        // The move suffers from five roundings at most, the difference from one, the slot from one.
        const double move = std::abs(w - expected);
        const double bound = half_ulp(types.weights) * (6 * move + std::abs(expected)) +
                             half_ulp(types.slot) * 1.01 * std::abs(expected) + 1e-30;
        REQUIRE(std::abs(c.slot.get(i) - expected) <=
                (types.slot == Number::Float16 ? bound + std::ldexp(1.0, -25) : bound));
      }
    }
  }
}

TEST_CASE("fused prediction: one bit pattern for all instruction sets, chunks and places") {
  for (const PredictionTypes types : kTypes) {
    for (const PredictionStep step : kSteps) {
      for (const std::int64_t count : {1, 3, 16, 511, 513, 2048, 4099}) {
        Case reference(types, step, count);
        reference.predict(InstructionSet::Baseline, count);
        const std::vector<std::byte> bits = reference.slot.all();
        for (const InstructionSet set : supported_sets()) {
          for (const std::int64_t chunk : {std::int64_t{1} << 16, std::int64_t{64}, count}) {
            for (const std::size_t skew : {std::size_t{0}, executor::bytes_of(types.slot)}) {
              Case c(types, step, count, skew);
              c.predict(set, chunk);
              REQUIRE(c.slot.all() == bits);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("fused prediction: a chunk writes its own numbers and no other") {
  for (const PredictionTypes types : kTypes) {
    for (const InstructionSet set : supported_sets()) {
      Case c(types, PredictionStep::Copy, 3000);
      const std::vector<PredictedTensor> list{c.tensor};
      const std::vector<PredictionChunk> middle{{.tensor = 0, .begin = 333, .count = 2101}};
      executor::predict_on_cpu(list, middle, types, set);
      for (std::int64_t i = 0; i < 3000; ++i) {
        if (i < 333 || i >= 2434) {
          REQUIRE(c.slot.get(i) == 0.0);
        }
      }
      CHECK(c.slot.get(333) != 0.0);
      CHECK(c.slot.get(2433) != 0.0);
    }
  }
}

/// What `value` becomes in a slot of 16 bits, on every instruction set.
std::uint16_t rounded(Number slot, float value) {
  std::uint16_t first = 0;
  bool is_first = true;
  for (const InstructionSet set : supported_sets()) {
    // As many as a vector holds, so that the vector's code is what is tested.
    const std::vector<float> weights(32, value);
    std::vector<std::uint16_t> into(weights.size());
    const std::vector<PredictedTensor> list{
        {.weights = weights.data(), .into = into.data(), .count = 32}};
    executor::predict_on_cpu(list, executor::prediction_chunks(list, 32), {Number::Float32, slot},
                             set);
    for (const std::uint16_t bits : into) {
      first = is_first ? bits : first;
      is_first = false;
      REQUIRE(bits == first);
    }
  }
  return first;
}

TEST_CASE("fused prediction: halfway values of every bf16 and fp16 go to the even neighbour") {
  for (const Number slot : {Number::BFloat16, Number::Float16}) {
    const std::uint32_t last = slot == Number::BFloat16 ? 0x7f7f : 0x7bff;  // largest finite
    // Every number of fp16; of bf16 one in seven, all exponents.
    for (std::uint32_t low = 0; low < last; low += slot == Number::BFloat16 ? 7 : 1) {
      const auto a = static_cast<std::uint16_t>(low);
      const auto b = static_cast<std::uint16_t>(low + 1);
      const auto below = static_cast<float>(value_of(slot, &a));
      const auto above = static_cast<float>(value_of(slot, &b));
      const float middle = below + (above - below) / 2;
      const float infinity = std::numeric_limits<float>::infinity();
      REQUIRE(rounded(slot, below) == a);
      REQUIRE(rounded(slot, middle) == (a % 2 == 0 ? a : b));
      REQUIRE(rounded(slot, std::nextafter(middle, 0.0F)) == a);
      REQUIRE(rounded(slot, std::nextafter(middle, infinity)) == b);
      REQUIRE(rounded(slot, -middle) == ((a % 2 == 0 ? a : b) | 0x8000));
    }
  }
}

TEST_CASE("fused prediction: infinities and what is no number stay what they are") {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(rounded(Number::BFloat16, infinity) == 0x7f80);
  CHECK(rounded(Number::BFloat16, -infinity) == 0xff80);
  CHECK(rounded(Number::BFloat16, std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(rounded(Number::Float16, infinity) == 0x7c00);
  CHECK(rounded(Number::Float16, -infinity) == 0xfc00);
  CHECK(rounded(Number::Float16, 65519.996F) == 0x7bff);
  CHECK(rounded(Number::Float16, 65520.0F) == 0x7c00);
  // A signalling one with low bits only must not become an infinity.
  for (const float value :
       {nan, std::bit_cast<float>(0x7f800001U), std::bit_cast<float>(0xffe12345U)}) {
    CHECK((rounded(Number::BFloat16, value) & 0x7fff) > 0x7f80);
    CHECK((rounded(Number::Float16, value) & 0x7fff) > 0x7c00);
  }
}

TEST_CASE("prediction chunks: cover every number of every tensor once, in order") {
  const std::vector<PredictedTensor> list{{.count = 10}, {.count = 0}, {.count = 4}, {.count = 3}};
  const std::vector<PredictionChunk> expected{
      {0, 0, 4}, {0, 4, 4}, {0, 8, 2}, {2, 0, 4}, {3, 0, 3}};
  CHECK(executor::prediction_chunks(list, 4) == expected);
  CHECK(executor::prediction_chunks({}, 4).empty());
}

TEST_CASE("prediction launches: do every number once, each within a kernel's arguments") {
  using executor::PredictionLaunch;
  constexpr std::int64_t kChunk = executor::kGpuPredictionChunk;
  std::vector<PredictedTensor> list;
  for (std::int64_t i = 0; i < 100; ++i) {
    list.push_back({.count = i % 10 == 9 ? 40 * kChunk + i : i % 7 == 3 ? 0 : 13 * i + 1});
  }
  list.push_back({.count = 1000 * kChunk + 5});  // more blocks than a launch has
  for (std::size_t i = 0; i < list.size(); ++i) {
    list[i].rate = static_cast<double>(i);  // tells them apart
  }
  std::vector<std::vector<int>> times(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    times[i].resize(static_cast<std::size_t>((list[i].count + kChunk - 1) / kChunk));
  }
  const std::vector<PredictionLaunch> launches = executor::prediction_launches(list);
  for (const PredictionLaunch& launch : launches) {
    REQUIRE(launch.blocks <= PredictionLaunch::kMostBlocks);
    REQUIRE(launch.blocks > 0);
    REQUIRE(launch.tensor_count <= PredictionLaunch::kMostTensors);
    for (std::uint32_t block = 0; block < launch.blocks; ++block) {
      REQUIRE(launch.tensor_of_block[block] < launch.tensor_count);
      const PredictedTensor& tensor = launch.tensors[launch.tensor_of_block[block]];
      const auto place = static_cast<std::size_t>(tensor.rate);
      CHECK(tensor.count == list[place].count);
      ++times[place].at(launch.chunk_of_block[block]);
    }
  }
  for (const std::vector<int>& of_tensor : times) {
    for (const int count : of_tensor) {
      CHECK(count == 1);
    }
  }
  CHECK(launches.size() == 7);  // 1431 blocks, and 32 tensors fill before 256 blocks do, twice
  CHECK(executor::prediction_launches({}).empty());
}

TEST_CASE("prediction bytes: what is read of the masters' type, what is written of the slot's") {
  const auto bytes = [](PredictionStep step, PredictionTypes types) {
    const std::vector<PredictedTensor> list{{.count = 10, .step = step},
                                            {.count = 5, .step = step}};
    return executor::prediction_bytes(list, types);
  };
  CHECK(bytes(PredictionStep::Copy, kTypes[0]) == 15 * (4 + 4));
  CHECK(bytes(PredictionStep::Linear, kTypes[0]) == 15 * (8 + 4));
  CHECK(bytes(PredictionStep::Normalized, kTypes[1]) == 15 * (12 + 2));
  CHECK(bytes(PredictionStep::Normalized, kTypes[3]) == 15 * (24 + 8));
}

}  // namespace
}  // namespace xpipe::tests
