// What travels on a link, and that damage is refused.
#include "executor/processes/frame.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "executor/processes/failure.h"

namespace xpipe::tests {

namespace {

using executor::decode_head;
using executor::encode_head;
using executor::Frame;
using executor::FrameKind;

executor::PackedTensor tensor(std::vector<std::int64_t> sizes, const std::string& bytes) {
  executor::PackedTensor packed = executor::parcel_of(bytes).tensors.front();
  packed.type = 6;
  packed.sizes = std::move(sizes);
  return packed;
}

}  // namespace

TEST_CASE("frame: a small message comes back from the head alone") {
  Frame frame{.kind = FrameKind::Done, .segment = 7, .task = 123456, .parcel = {}};
  frame.parcel.tensors = {tensor({2, 3}, std::string(24, 'a')), tensor({}, "bcde"),
                          tensor({0, 5}, "")};
  const auto decoded = decode_head(encode_head(frame));
  REQUIRE(decoded.ok());
  CHECK(!decoded.value().follow);
  const Frame& back = decoded.value().frame;
  CHECK(back.kind == FrameKind::Done);
  CHECK(back.segment == 7);
  CHECK(back.task == 123456);
  REQUIRE(back.parcel.tensors.size() == 3);
  CHECK(back.parcel.tensors[0].sizes == std::vector<std::int64_t>{2, 3});
  CHECK(back.parcel.tensors[0].type == 6);
  CHECK(back.parcel.tensors[2].sizes == std::vector<std::int64_t>{0, 5});
  CHECK(executor::bytes_of(back.parcel) == std::string(24, 'a') + "bcde");
}

TEST_CASE("frame: what is too large for the head gets memory of its own") {
  Frame frame{.kind = FrameKind::Plain, .parcel = {}};
  frame.parcel.tensors = {tensor({1000}, std::string(4000, 'x'))};
  CHECK(!executor::fits_in_head(frame.parcel));
  const auto decoded = decode_head(encode_head(frame));
  REQUIRE(decoded.ok());
  CHECK(decoded.value().follow);
  REQUIRE(decoded.value().memory.size() == 1);
  CHECK(decoded.value().frame.parcel.tensors[0].bytes == 4000);
  CHECK(reinterpret_cast<std::uintptr_t>(decoded.value().memory[0]) % 64 == 0);
}

TEST_CASE("frame: a message of many tensors goes in parts, the last of which says what it is") {
  for (const std::size_t count : {0U, 1U, 8U, 9U, 16U, 20U}) {
    CAPTURE(count);
    Frame frame{.kind = FrameKind::Done, .segment = 7, .task = 5, .parcel = {}};
    for (std::size_t i = 0; i < count; ++i) {
      frame.parcel.tensors.push_back(tensor({1}, std::string(4, static_cast<char>('a' + i))));
    }
    const std::string whole = executor::bytes_of(frame.parcel);
    const std::vector<Frame> frames = executor::in_parts(frame);
    CHECK(frames.size() == std::max<std::size_t>(1, (count + 7) / 8));
    std::string bytes;
    for (const Frame& part : frames) {
      CHECK(part.parcel.tensors.size() <= executor::kMaxTensors);
      CHECK(part.segment == 7);
      CHECK(part.task == 5);
      CHECK((part.kind == FrameKind::Done) == (&part == &frames.back()));
      CHECK(decode_head(encode_head(part)).ok());
      bytes += executor::bytes_of(part.parcel);
    }
    CHECK(bytes == whole);
  }
}

TEST_CASE("frame: heads that no rank writes are refused, whatever byte is damaged") {
  Frame frame{.kind = FrameKind::Done, .segment = 1, .task = 2, .parcel = {}};
  frame.parcel.tensors = {tensor({4}, "abcd")};
  const executor::Head good = encode_head(frame);
  const auto refused = [&good](std::size_t at, auto value) {
    executor::Head head = good;
    std::memcpy(head.data() + at, &value, sizeof(value));
    const auto decoded = decode_head(head);
    return !decoded.ok() && decoded.error().diagnostics[0].code == "bad-frame";
  };
  CHECK(refused(0, std::uint32_t{0}));         // magic
  CHECK(refused(4, std::uint8_t{99}));         // kind
  CHECK(refused(5, std::uint8_t{200}));        // tensors
  CHECK(refused(32, std::uint64_t{1} << 60));  // bytes
  CHECK(refused(32, std::uint64_t{5000}));     // bytes that are not in the head
  CHECK(refused(40, std::uint32_t{1000}));     // type
  CHECK(refused(44, std::uint32_t{1000}));     // dimensions
  CHECK(refused(48, std::int64_t{-1}));        // a size
  for (std::size_t at = 0; at < executor::kHeadBytes; ++at) {
    executor::Head head = good;
    head[at] = ~head[at];
    (void)decode_head(head);  // may be another good head, never a crash
  }
}

TEST_CASE("failure: travels whole, and is shown with rank, stage and task") {
  const executor::Failure failure{
      .rank = 2,
      .signal = 15,
      .error = {ir::ErrorKind::Runtime,
                {{"handler-failed", "12F3[s0:v0]", "out of \"memory\""}, {"x", "", "more"}}}};
  const auto back = executor::failure_from(executor::to_bytes(failure));
  REQUIRE(back.ok());
  CHECK(back.value().rank == 2);
  CHECK(back.value().signal == 15);
  CHECK(back.value().error.diagnostics == failure.error.diagnostics);
  CHECK(executor::shown(back.value()).to_string() ==
        "rank 2, stage 12, task 12F3[s0:v0]: out of \"memory\" [handler-failed]\n"
        "rank 2: more [x]");
  CHECK(!executor::failure_from("{}").ok());
  CHECK(!executor::failure_from("nonsense").ok());
}

TEST_CASE("failure: bytes that are no text, and texts without end, travel too") {
  executor::Failure failure{.rank = 0, .signal = 0, .error = {ir::ErrorKind::BadInput, {}}};
  failure.error.diagnostics.assign(100, {"c", "\xff\xfe", std::string(100000, 'm')});
  const auto back = executor::failure_from(executor::to_bytes(failure));
  REQUIRE(back.ok());
  CHECK(back.value().error.kind == ir::ErrorKind::BadInput);
  CHECK(back.value().error.diagnostics.size() == 16);
  CHECK(back.value().error.diagnostics[0].message.size() < 5000);
}

}  // namespace xpipe::tests
