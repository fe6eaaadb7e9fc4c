// What members of an exchange in other processes bring: it arrives bit for bit, what is undefined
// stays so, and what does not fit is refused.
#include "executor/torch/rank_exchange.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "executor/torch/mailboxes.h"
#include "tests/executor_torch/torch_doctest.h"

namespace xpipe::tests {
namespace {

namespace nn = executor::nn;
using executor::Parcel;
using ir::TaskId;

/// Everything else that travels: notes what it is asked.
class OtherMail final : public executor::Mail {
 public:
  [[nodiscard]] std::optional<Parcel> collect(TaskId task) override {
    asked.push_back(ir::index_of(task));
    return std::nullopt;
  }

  ir::Status deliver(TaskId task, Parcel /*parcel*/) override {
    asked.push_back(ir::index_of(task));
    return {};
  }

  std::vector<std::uint32_t> asked;
};

const nn::ExchangeKey kSum{.stage = ir::StageId{1}, .mini_batch = ir::MiniBatch{3}};
const nn::ExchangeKey kNorm{.kind = ir::TaskKind::ClipNorm, .mini_batch = ir::MiniBatch{3}};

std::map<TaskId, std::vector<nn::ExchangeMember>> brought() {
  return {{TaskId{7}, {{.key = kSum, .rank = 1}}},
          {TaskId{9}, {{.key = kNorm, .rank = 0}, {.key = kNorm, .rank = 2}}}};
}

nn::Tensors gradients() {
  nn::Tensors tensors;
  for (std::int64_t i = 0; i < 20; ++i) {
    tensors.push_back(i % 3 == 1 ? torch::Tensor()
                                 : torch::full({i + 1, 2}, 0.1 * static_cast<double>(i)));
  }
  return tensors;
}

bool same(const nn::Tensors& a, const nn::Tensors& b) {
  bool equal = a.size() == b.size();
  for (std::size_t i = 0; equal && i < a.size(); ++i) {
    equal = a[i].defined() == b[i].defined() && (!a[i].defined() || torch::equal(a[i], b[i]));
  }
  return equal;
}

struct Ends {
  OtherMail other;
  nn::RankExchange here{other};
  nn::RankExchange there{other};

  explicit Ends(const nn::RankExchange::Bring& bring) {
    here.begin_segment(brought(), bring);
    there.begin_segment(brought(), {});
  }
};

TEST_CASE("rank exchange: a member's tensors arrive bit for bit, those undefined as such") {
  Ends ends([](const nn::ExchangeMember& member) {
    CHECK(member.key == kSum);
    CHECK(member.rank == 1);
    return gradients();
  });
  std::optional<Parcel> parcel = ends.here.collect(TaskId{7});
  REQUIRE(parcel.has_value());
  REQUIRE(ends.there.deliver(TaskId{7}, *std::move(parcel)).ok());
  std::vector<std::optional<nn::Tensors>> members(2);
  members[0] = nn::Tensors(20);
  REQUIRE(ends.there.complete(kSum, members).ok());
  CHECK(same(*members[1], gradients()));
  CHECK(ends.other.asked.empty());
}

TEST_CASE("rank exchange: two members that one task makes ready come together") {
  Ends ends([](const nn::ExchangeMember& member) {
    return nn::Tensors{torch::full({}, 10.0 + static_cast<double>(member.rank)), torch::Tensor()};
  });
  std::optional<Parcel> parcel = ends.here.collect(TaskId{9});
  REQUIRE(parcel.has_value());
  REQUIRE(ends.there.deliver(TaskId{9}, *std::move(parcel)).ok());
  std::vector<std::optional<nn::Tensors>> members(3);
  members[1] = nn::Tensors(2);
  REQUIRE(ends.there.complete(kNorm, members).ok());
  CHECK(members[0]->at(0).item<double>() == 10.0);
  CHECK(members[2]->at(0).item<double>() == 12.0);
  CHECK(!members[2]->at(1).defined());
}

TEST_CASE("rank exchange: what is of no exchange goes on, and what has not come is said") {
  Ends ends([](const nn::ExchangeMember&) { return gradients(); });
  CHECK(!ends.here.collect(TaskId{1}).has_value());
  CHECK(ends.there.deliver(TaskId{2}, {}).ok());
  CHECK(ends.other.asked == std::vector<std::uint32_t>{1, 2});
  std::vector<std::optional<nn::Tensors>> members(2);
  const ir::Status missing = ends.there.complete(kSum, members);
  REQUIRE(!missing.ok());
  CHECK(missing.error().diagnostics.front().code == "no-member");
}

TEST_CASE("rank exchange: messages of another shape are refused") {
  Ends ends([](const nn::ExchangeMember&) { return gradients(); });
  const Parcel good = *ends.here.collect(TaskId{7});
  Parcel fewer = good;
  fewer.tensors.pop_back();
  Parcel more = good;
  more.tensors.push_back(more.tensors.back());
  for (const Parcel& bad : {Parcel{}, fewer, more, executor::parcel_of("00.00.")}) {
    const ir::Status status = ends.there.deliver(TaskId{7}, bad);
    REQUIRE(!status.ok());
    CHECK(status.error().kind == ir::ErrorKind::Runtime);
  }
}

}  // namespace
}  // namespace xpipe::tests
