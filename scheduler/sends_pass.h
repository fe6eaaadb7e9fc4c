// The sends pass: what a sender and a receiver wait for, as edges of the schedule, so that whoever
// runs or replays it needs no rules of its own.
//
//   eager        a send starts when its producer has ended; the receiver may be anywhere (buffers)
//   rendezvous   it starts when, besides, the receiver's compute lane has come to the consumer; the
//                sender computes on meanwhile                          (MPI_Isend, large messages)
//   blocking     rendezvous, and the sender's compute lane waits for the end of the send; a receive
//                is posted only after the sends before it in that lane     (MPI_Ssend, MPI_Recv)
//
//   sender    P ........... N        edges, besides P>SEND>RECV>C:
//              \           :           rendezvous  Q>SEND (blocking: Q's last send>SEND)
//              SEND ......>:           blocking    SEND>N
//             /     \                Q stands before C in its compute lane, N behind P in its own
//   receiver Q      RECV  C
//
// Devices that wait for each other are a ring of edges: the validator shows it (code "cycle"). The
// mode is written into the schedule's options ("sends"); without that option a schedule is eager.
#pragma once

#include <cstdint>
#include <string_view>

#include "ir/schedule.h"
#include "ir/status.h"

namespace xpipe::scheduler {

enum class Sends : std::uint8_t { Eager, Rendezvous, Blocking };

/// "eager", "rendezvous", "blocking".
[[nodiscard]] std::string_view sends_name(Sends mode);

inline constexpr std::string_view kSendsOption = "sends";

/// Puts the messages of each link in the order of their consumers. A compiler does so before
/// Rendezvous: a message that is needed early and stands behind one that is needed late would wait
/// for ever. Ids are given anew, so that those of a lane ascend. Requires: as add_send_waits().
void order_messages_by_consumer(ir::Schedule& schedule);

/// Adds the edges of `mode` and the option; with Eager nothing. Requires: a sound shape
/// (ir/validate.h), each message with its producer, receive and consumer. Errors: Usage, when the
/// schedule has a mode already.
ir::Status add_send_waits(Sends mode, ir::Schedule& schedule);

/// add_send_waits() to a legal schedule that is there already, its messages in their order. Errors:
/// Usage as there; Illegal when devices then wait for each other, with the ring and the fix.
ir::Status make_sends_wait(Sends mode, ir::Schedule& schedule);

/// `error`, of a schedule with `mode`: what the validator says of a ring is given the fix.
[[nodiscard]] ir::Error explain_deadlock(Sends mode, ir::Error error);

}  // namespace xpipe::scheduler
