#include "ir/text.h"

#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

namespace xpipe::ir {

namespace {

void append(std::string& out, std::int64_t number) {
  char buffer[24];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), number).ptr;
  out.append(buffer, end);
}

/// The stage that a message of `pass` usually goes to (or comes from); -1 or 65536 when there is
/// no such stage, which no peer equals.
int usual_peer(StageId stage, Pass pass, bool sends) {
  const bool up = (pass == Pass::Forward) == sends;
  return static_cast<int>(index_of(stage)) + (up ? 1 : -1);
}

void append_weights(std::string& out, const WeightRead& weights) {
  out += "[s";
  append(out, index_of(weights.slot));
  out += ":v";
  append(out, weights.version);
  if (weights.distance != 0) {
    out += '+';
    append(out, weights.distance);
  }
  out += ']';
}

void append_message(
    std::string& out, StageId stage, StageId peer, Pass pass, bool sends, Bytes bytes) {
  const bool write_peer = static_cast<int>(index_of(peer)) != usual_peer(stage, pass, sends);
  const bool write_bytes = bytes >= 0;
  if (!write_peer && !write_bytes) {
    return;
  }
  out += '[';
  if (write_peer) {
    out += sends ? '>' : '<';
    append(out, index_of(peer));
  }
  if (write_peer && write_bytes) {
    out += ':';
  }
  if (write_bytes) {
    append(out, bytes);
    out += 'B';
  }
  out += ']';
}

/// Letters between stage and index.
struct Word {
  std::string_view text;
  TaskKind kind;
  Pass pass;  ///< of Predict, Send and Receive
};

constexpr Word kWords[] = {
    {"F", TaskKind::Forward, Pass::Forward},
    {"B", TaskKind::Backward, Pass::Forward},
    {"I", TaskKind::BackwardInput, Pass::Forward},
    {"W", TaskKind::BackwardWeight, Pass::Forward},
    {"RECOMPUTE", TaskKind::Recompute, Pass::Forward},
    {"PREDICT_F", TaskKind::Predict, Pass::Forward},
    {"PREDICT_B", TaskKind::Predict, Pass::Backward},
    {"STEP", TaskKind::Step, Pass::Forward},
    {"STASH", TaskKind::Stash, Pass::Forward},
    {"RELEASE", TaskKind::Release, Pass::Forward},
    {"SEND_F", TaskKind::Send, Pass::Forward},
    {"SEND_B", TaskKind::Send, Pass::Backward},
    {"RECV_F", TaskKind::Receive, Pass::Forward},
    {"RECV_B", TaskKind::Receive, Pass::Backward},
    {"ALLREDUCE", TaskKind::AllReduce, Pass::Forward},
    {"SUMTIED", TaskKind::SumTied, Pass::Forward},
    {"CLIP", TaskKind::ClipNorm, Pass::Forward},
};

std::string_view word_of(TaskKind kind, Pass pass) {
  for (const Word& word : kWords) {
    const bool has_pass =
        kind == TaskKind::Predict || kind == TaskKind::Send || kind == TaskKind::Receive;
    if (word.kind == kind && (!has_pass || word.pass == pass)) {
      return word.text;
    }
  }
  return "?";
}

/// Reads one token from left to right; the first mismatch is kept and everything after it fails.
class TokenReader {
 public:
  explicit TokenReader(std::string_view token) : token_(token) {}

  [[nodiscard]] bool failed() const { return !problem_.empty(); }

  [[nodiscard]] bool at_end() const { return position_ == token_.size(); }

  [[nodiscard]] bool next_is(char c) const {
    return position_ < token_.size() && token_[position_] == c;
  }

  void fail(std::string problem) {
    if (!failed()) {
      problem_ = std::move(problem);
    }
  }

  void expect(char c, std::string_view why) {
    if (failed()) {
      return;
    }
    if (!next_is(c)) {
      fail("expected '" + std::string(1, c) + "' " + std::string(why) + ", found " + found());
      return;
    }
    ++position_;
  }

  bool accept(char c) {
    if (failed() || !next_is(c)) {
      return false;
    }
    ++position_;
    return true;
  }

  template <typename Number>
  Number number(std::string_view what) {
    Number value{};
    if (failed()) {
      return value;
    }
    const std::size_t begin = position_;
    while (position_ < token_.size() && token_[position_] >= '0' && token_[position_] <= '9') {
      ++position_;
    }
    const std::string_view digits = token_.substr(begin, position_ - begin);
    if (digits.empty()) {
      fail("expected " + std::string(what) + " in decimal digits, found " + found());
      return value;
    }
    if (digits.size() > 1 && digits[0] == '0') {
      position_ = begin;
      fail(std::string(what) + " " + std::string(digits) + " has a leading zero");
      return value;
    }
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (result.ec != std::errc{}) {
      position_ = begin;
      fail(std::string(what) + " " + std::string(digits) + " is larger than " +
           std::to_string(std::numeric_limits<Number>::max()));
    }
    return value;
  }

  std::string_view letters() {
    const std::size_t begin = position_;
    while (position_ < token_.size() &&
           ((token_[position_] >= 'A' && token_[position_] <= 'Z') || token_[position_] == '_')) {
      ++position_;
    }
    return token_.substr(begin, position_ - begin);
  }

  void back_to(std::size_t position) { position_ = position; }

  [[nodiscard]] std::size_t position() const { return position_; }

  [[nodiscard]] std::string found() const {
    if (position_ >= token_.size()) {
      return "the end";
    }
    const unsigned char c = static_cast<unsigned char>(token_[position_]);
    if (c < 0x20 || c >= 0x7f) {
      return "byte " + std::to_string(c);
    }
    return "'" + std::string(1, static_cast<char>(c)) + "'";
  }

  [[nodiscard]] Error error() const {
    return make_error(ErrorKind::BadInput, "token",
                      "\"" + std::string(token_) + "\", character " + std::to_string(position_ + 1),
                      problem_);
  }

 private:
  std::string_view token_;
  std::size_t position_ = 0;
  std::string problem_;
};

WeightRead read_weights(TokenReader& in, std::string_view token) {
  WeightRead weights;
  if (in.at_end()) {
    in.fail("does not say which weights it reads: expected " + std::string(token) +
            "[sSLOT:vVERSION] or " + std::string(token) + "[sSLOT:vVERSION+DISTANCE]");
    return weights;
  }
  in.expect('[', "before the weights read");
  in.expect('s', "before the slot");
  weights.slot = SlotId{in.number<std::uint16_t>("slot")};
  in.expect(':', "between slot and version");
  in.expect('v', "before the version");
  weights.version = in.number<std::uint32_t>("version");
  if (in.accept('+')) {
    const std::size_t place = in.position();
    weights.distance = in.number<std::uint16_t>("distance");
    if (!in.failed() && weights.distance == 0) {
      in.back_to(place);
      in.fail("distance 0 is not written: leave out +0");
    }
  }
  in.expect(']', "after the weights read");
  return weights;
}

/// [sFROM:vVERSION>sINTO, as Predict and Stash begin.
template <typename Copy>
void read_copy(TokenReader& in, Copy& copy) {
  in.expect('[', "before the slots");
  in.expect('s', "before the slot read");
  copy.from = SlotId{in.number<std::uint16_t>("slot")};
  in.expect(':', "between slot and version");
  in.expect('v', "before the version");
  copy.version = in.number<std::uint32_t>("version");
  in.expect('>', "before the slot written");
  in.expect('s', "before the slot written");
  copy.into = SlotId{in.number<std::uint16_t>("slot")};
}

template <typename Message>
Message read_message(TokenReader& in, StageId stage, Pass pass, bool sends) {
  Message message;
  message.pass = pass;
  const std::size_t begin = in.position();
  const int usual = usual_peer(stage, pass, sends);
  bool peer_written = false;
  if (in.accept('[')) {
    const char mark = sends ? '>' : '<';
    peer_written = in.accept(mark);
    if (peer_written) {
      message.peer = StageId{in.number<std::uint16_t>("peer stage")};
    }
    if (!peer_written || in.accept(':')) {
      message.bytes = in.number<std::int64_t>("bytes");
      in.expect('B', "after the bytes");
    }
    in.expect(']', "after the message");
  }
  if (!peer_written) {
    if (!in.failed() && (usual < 0 || usual > std::numeric_limits<std::uint16_t>::max())) {
      in.back_to(begin);
      in.fail("the usual peer would be stage " + std::to_string(usual) +
              ", which cannot be: write the peer, as in [" + (sends ? ">" : "<") + "3]");
      return message;
    }
    message.peer = StageId{static_cast<std::uint16_t>(usual)};
  }
  return message;
}

Payload read_payload(
    TokenReader& in, const Word& word, StageId stage, std::uint32_t index, std::string_view bare) {
  const MicroBatch micro_batch{index};
  const MiniBatch mini_batch{index};
  switch (word.kind) {
    case TaskKind::Forward:
      return Forward{micro_batch, read_weights(in, bare)};
    case TaskKind::Backward:
      return Backward{micro_batch, read_weights(in, bare)};
    case TaskKind::BackwardInput:
      return BackwardInput{micro_batch, read_weights(in, bare)};
    case TaskKind::BackwardWeight:
      return BackwardWeight{micro_batch, read_weights(in, bare)};
    case TaskKind::Recompute:
      return Recompute{micro_batch, read_weights(in, bare)};
    case TaskKind::Predict: {
      Predict predict{.mini_batch = mini_batch, .pass = word.pass};
      read_copy(in, predict);
      in.expect('+', "before the distance");
      predict.distance = in.number<std::uint16_t>("distance");
      in.expect(']', "after the distance");
      return predict;
    }
    case TaskKind::Step: {
      Step step{.mini_batch = mini_batch};
      in.expect('[', "before the version stepped from");
      in.expect('v', "before the version");
      step.version = in.number<std::uint32_t>("version");
      in.expect(']', "after the version");
      return step;
    }
    case TaskKind::Stash: {
      Stash stash{.mini_batch = mini_batch};
      read_copy(in, stash);
      in.expect(']', "after the slot written");
      return stash;
    }
    case TaskKind::Release: {
      Release release{.mini_batch = mini_batch};
      in.expect('[', "before the slot released");
      in.expect('s', "before the slot");
      release.slot = SlotId{in.number<std::uint16_t>("slot")};
      in.expect(']', "after the slot");
      return release;
    }
    case TaskKind::Send: {
      Send send = read_message<Send>(in, stage, word.pass, true);
      send.micro_batch = micro_batch;
      return send;
    }
    case TaskKind::Receive: {
      Receive receive = read_message<Receive>(in, stage, word.pass, false);
      receive.micro_batch = micro_batch;
      return receive;
    }
    case TaskKind::AllReduce:
      return AllReduce{mini_batch};
    case TaskKind::SumTied: {
      SumTied tied{.mini_batch = mini_batch};
      in.expect('[', "before the stage that has the same weights");
      tied.peer = StageId{in.number<std::uint16_t>("peer stage")};
      in.expect(']', "after the stage");
      return tied;
    }
    case TaskKind::ClipNorm:
      return ClipNorm{mini_batch};
  }
  return {};
}

}  // namespace

std::string to_text(const Task& task) {
  std::string out;
  append(out, index_of(task.stage));
  const auto head = [&out, &task](Pass pass, auto index) {
    out += word_of(task.kind(), pass);
    append(out, index_of(index));
  };
  std::visit(
      [&]<typename T>(const T& payload) {
        if constexpr (requires { payload.weights; }) {
          head(Pass::Forward, payload.micro_batch);
          append_weights(out, payload.weights);
        } else if constexpr (std::is_same_v<T, Predict> || std::is_same_v<T, Stash>) {
          if constexpr (std::is_same_v<T, Predict>) {
            head(payload.pass, payload.mini_batch);
          } else {
            head(Pass::Forward, payload.mini_batch);
          }
          append_weights(out, WeightRead{payload.version, payload.from, 0});
          out.back() = '>';
          out += 's';
          append(out, index_of(payload.into));
          if constexpr (std::is_same_v<T, Predict>) {
            out += '+';
            append(out, payload.distance);
          }
          out += ']';
        } else if constexpr (std::is_same_v<T, Step>) {
          head(Pass::Forward, payload.mini_batch);
          out += "[v";
          append(out, payload.version);
          out += ']';
        } else if constexpr (std::is_same_v<T, Release>) {
          head(Pass::Forward, payload.mini_batch);
          out += "[s";
          append(out, index_of(payload.slot));
          out += ']';
        } else if constexpr (std::is_same_v<T, SumTied>) {
          head(Pass::Forward, payload.mini_batch);
          out += '[';
          append(out, index_of(payload.peer));
          out += ']';
        } else if constexpr (std::is_same_v<T, Send> || std::is_same_v<T, Receive>) {
          head(payload.pass, payload.micro_batch);
          append_message(out, task.stage, payload.peer, payload.pass, std::is_same_v<T, Send>,
                         payload.bytes);
        } else {
          static_assert(std::is_same_v<T, AllReduce> || std::is_same_v<T, ClipNorm>,
                        "give the new kind a text form");
          head(Pass::Forward, payload.mini_batch);
        }
      },
      task.payload);
  return out;
}

Result<Task> task_from_text(std::string_view token) {
  TokenReader in(token);
  Task task;
  task.stage = StageId{in.number<std::uint16_t>("stage")};
  if (in.failed()) {
    return in.error();
  }
  const std::size_t word_begin = in.position();
  const std::string_view letters = in.letters();
  const Word* word = nullptr;
  for (const Word& candidate : kWords) {
    if (candidate.text == letters) {
      word = &candidate;
    }
  }
  if (word == nullptr) {
    const std::string shown = letters.empty() ? in.found() : "\"" + std::string(letters) + "\"";
    in.back_to(word_begin);
    in.fail(
        "expected a task kind (F, B, I, W, RECOMPUTE, PREDICT_F, PREDICT_B, STEP, STASH, "
        "RELEASE, SEND_F, SEND_B, RECV_F, RECV_B, ALLREDUCE, SUMTIED or CLIP), found " +
        shown);
    return in.error();
  }
  const bool of_micro_batch = word->kind == TaskKind::Send || word->kind == TaskKind::Receive ||
                              word->kind <= TaskKind::Recompute;
  const auto index = in.number<std::uint32_t>(of_micro_batch ? "micro-batch" : "mini-batch");
  if (in.failed()) {
    return in.error();
  }
  task.payload = read_payload(in, *word, task.stage, index, token.substr(0, in.position()));
  if (!in.failed() && !in.at_end()) {
    in.fail("expected the end of the task, found " + in.found());
  }
  if (in.failed()) {
    return in.error();
  }
  return task;
}

}  // namespace xpipe::ir
