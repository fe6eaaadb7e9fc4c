// Small legal schedules in text form for the tests of ir/, and how to break them.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "ir/schedule.h"
#include "ir/text.h"

namespace xpipe::ir::tests {

/// GPipe, two stages, two micro-batches:
///
///   device 0   F0 F1 .. .. B0 B1 STEP
///   device 1   .. F0 F1 B0 B1 STEP
inline constexpr std::string_view kTwoStages = R"(# xpipe.schedule 1
policy hand
micro-batches 2
mini-batches 1
devices 2
stage 0 device 0 slots 1
stage 1 device 1 slots 1
compute 0: 0F0[s0:v0] 0F1[s0:v0] 0B0[s0:v0] 0B1[s0:v0] 0STEP0[v0]
compute 1: 1F0[s0:v0] 1F1[s0:v0] 1B0[s0:v0] 1B1[s0:v0] 1STEP0[v0]
send 0>1: 0SEND_F0 0SEND_F1[8B]
receive 0>1: 1RECV_F0 1RECV_F1[8B]
send 1>0: 1SEND_B0 1SEND_B1
receive 1>0: 0RECV_B0 0RECV_B1
edges: 0F0>0SEND_F0 0SEND_F0>1RECV_F0 1RECV_F0>1F0
edges: 0F1>0SEND_F1 0SEND_F1>1RECV_F1 1RECV_F1>1F1
edges: 1B0>1SEND_B0 1SEND_B0>0RECV_B0 0RECV_B0>0B0
edges: 1B1>1SEND_B1 1SEND_B1>0RECV_B1 0RECV_B1>0B1
)";

/// One stage, two mini-batches of one micro-batch, every kind of copy: mini-batch 0 is recomputed
/// and split, mini-batch 1 runs forward on a prediction and backward on a stash.
inline constexpr std::string_view kOneStage = R"(# xpipe.schedule 1
policy hand
micro-batches 1
mini-batches 2
devices 1
stage 0 device 0 slots 3
compute 0: 0F0[s0:v0] 0PREDICT_F1[s0:v0>s1+1] 0F1[s1:v0+1] 0RECOMPUTE0[s0:v0] 0I0[s0:v0] 0W0[s0:v0] 0STASH0[s0:v0>s2] 0ALLREDUCE0 0STEP0[v0] 0B1[s2:v0] 0RELEASE1[s2] 0STEP1[v1]
)";

/// Two stages on one device (stage 1 follows at once) and two compute lanes there: stage 0's step
/// and prediction on the second one.
///
///   compute 0   0F0 1F0 1B0 0B0 1STEP0 ........ 0F1 1F1 1B1 0B1 1STEP1
///   compute 0                     0STEP0 0PREDICT_F1                   0STEP1
inline constexpr std::string_view kTwoLanes = R"(# xpipe.schedule 1
policy hand
micro-batches 1
mini-batches 2
devices 1
stage 0 device 0 slots 2
stage 1 device 0 slots 1
compute 0: 0F0[s0:v0] 1F0[s0:v0] 1B0[s0:v0] 0B0[s0:v0] 1STEP0[v0] 0F1[s1:v1+1] 1F1[s0:v1] 1B1[s0:v1] 0B1[s0:v1] 1STEP1[v1]
compute 0: 0STEP0[v0] 0PREDICT_F1[s0:v1>s1+1] 0STEP1[v1]
edges: 0B0>0STEP0 0PREDICT_F1>0F1 0B1>0STEP1
)";

/// Stage 0 on devices 0 and 1, one micro-batch each of a mini-batch of two; the steps wait for the
/// sum of both gradients.
///
///   device 0   F0 .. .. B0 .. ALLREDUCE STEP
///   device 1   F1 .. .. .. B1 ALLREDUCE STEP
///   device 2   .. F0 B0 F1 B1 STEP
inline constexpr std::string_view kReplicas = R"(# xpipe.schedule 1
policy hand
micro-batches 2
mini-batches 1
devices 3
stage 0 devices 0,1 slots 1
stage 1 device 2 slots 1
compute 0: 0F0[s0:v0] 0B0[s0:v0] 0ALLREDUCE0 0STEP0[v0]
compute 1: 0F1[s0:v0] 0B1[s0:v0] 0ALLREDUCE0 0STEP0[v0]
compute 2: 1F0[s0:v0] 1B0[s0:v0] 1F1[s0:v0] 1B1[s0:v0] 1STEP0[v0]
send 0>2: 0SEND_F0
receive 0>2: 1RECV_F0
send 1>2: 0SEND_F1
receive 1>2: 1RECV_F1
send 2>0: 1SEND_B0
receive 2>0: 0RECV_B0
send 2>1: 1SEND_B1
receive 2>1: 0RECV_B1
edges: 0F0>0SEND_F0 0SEND_F0>1RECV_F0 1RECV_F0>1F0 1B0>1SEND_B0 1SEND_B0>0RECV_B0 0RECV_B0>0B0
edges: 0F1>0SEND_F1 0SEND_F1>1RECV_F1 1RECV_F1>1F1 1B1>1SEND_B1 1SEND_B1>0RECV_B1 0RECV_B1>0B1
edges: 0B0>0ALLREDUCE0#1 0B1>0ALLREDUCE0#0
)";

/// Two stages that share weights, and clip by the norm over both.
inline constexpr std::string_view kExchanges = R"(# xpipe.schedule 1
policy hand
option clip-norm=1
micro-batches 1
mini-batches 1
devices 2
stage 0 device 0 slots 1
stage 1 device 1 slots 1
compute 0: 0F0[s0:v0] 0B0[s0:v0] 0SUMTIED0[1] 0CLIP0 0STEP0[v0]
compute 1: 1F0[s0:v0] 1B0[s0:v0] 1SUMTIED0[0] 1CLIP0 1STEP0[v0]
send 0>1: 0SEND_F0
receive 0>1: 1RECV_F0
send 1>0: 1SEND_B0
receive 1>0: 0RECV_B0
edges: 0F0>0SEND_F0 0SEND_F0>1RECV_F0 1RECV_F0>1F0 1B0>1SEND_B0 1SEND_B0>0RECV_B0 0RECV_B0>0B0
edges: 0B0>1SUMTIED0 1B0>0SUMTIED0 0SUMTIED0>1CLIP0 1SUMTIED0>0CLIP0
)";

using Edits = std::vector<std::pair<std::string, std::string>>;

/// `text` with each first string, which must stand there exactly once, replaced by the second.
inline std::string edited(std::string_view text, const Edits& edits) {
  std::string out(text);
  for (const auto& [from, to] : edits) {
    const std::size_t place = out.find(from);
    REQUIRE_MESSAGE(place != std::string::npos, "not in the text: ", from);
    REQUIRE_MESSAGE(out.find(from, place + 1) == std::string::npos, "twice in the text: ", from);
    out.replace(place, from.size(), to);
  }
  return out;
}

inline Schedule parsed(std::string_view text) {
  Result<Schedule> schedule = schedule_from_text(text, "test.tasks");
  REQUIRE_MESSAGE(schedule.ok(), (schedule.ok() ? "" : schedule.error().to_string()));
  return schedule.value();
}

}  // namespace xpipe::ir::tests
