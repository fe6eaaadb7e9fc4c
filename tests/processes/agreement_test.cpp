// What differs between ranks is found and named on all of them.
#include "executor/processes/agreement.h"

#include <mutex>
#include <set>
#include <string>

#include <doctest/doctest.h>

#include "executor/processes/exchange.h"
#include "tests/processes/socket_links.h"

namespace xpipe::tests {

using executor::Items;

TEST_CASE("agreement: what differs is named with its values and ranks, all of it at once") {
  const Items a = {{"--lr", "0.001"}, {"schedule", "aa"}, {"data", "d"}};
  Items b = a;
  b[0].second = "0.01";
  Items c = a;
  c[1].second = "cc";
  c.pop_back();
  CHECK(executor::compare_items({a}).ok());
  CHECK(executor::compare_items({a, a, a}).ok());
  const ir::Status differ = executor::compare_items({a, b, a, c});
  REQUIRE(!differ.ok());
  CHECK(differ.error().kind == ir::ErrorKind::Runtime);
  CHECK(differ.error().to_string() ==
        "--lr: is not the same everywhere: 0.001 on ranks 0, 2, 3; 0.01 on rank 1 [ranks-differ]\n"
        "schedule: is not the same everywhere: aa on ranks 0, 1, 2; cc on rank 3 [ranks-differ]\n"
        "data: is not the same everywhere: d on ranks 0, 1, 2; nothing on rank 3 [ranks-differ]");
}

TEST_CASE("agreement: a fingerprint is FNV-1a in hexadecimal") {
  CHECK(executor::fingerprint("") == "cbf29ce484222325");   // the offset basis
  CHECK(executor::fingerprint("a") == "af63dc4c8601ec8c");  // Noll's test vectors
  CHECK(executor::fingerprint("foobar") == "85944171f73967e8");
}

TEST_CASE("agreement: every rank learns of the difference, in the same words") {
  std::mutex mutex;
  std::set<std::string> said;
  run_ranks(4, [&](executor::Processes& peers) {
    const ir::Status status = executor::agree(peers, {{"seed", peers.rank() == 2 ? "7" : "3"}});
    REQUIRE(!status.ok());
    const ir::Error error = peers.leave(status.error());
    const std::lock_guard lock(mutex);
    said.insert(error.to_string());
  });
  CHECK(said == std::set<std::string>{
                    "rank 0, seed: is not the same everywhere: 3 on ranks 0, 1, 3; 7 on rank 2 "
                    "[ranks-differ]"});
}

TEST_CASE("agreement: equal ranks go on, and what one says reaches all") {
  run_ranks(3, [](executor::Processes& peers) {
    CHECK(executor::agree(peers, {{"seed", "3"}, {"schedule", "aa"}}).ok());
    const std::string mine = "rank " + std::to_string(peers.rank());
    const auto all = executor::gather_at_zero(peers, mine);
    REQUIRE(all.ok());
    CHECK(all.value() == (peers.rank() == 0 ? std::vector<std::string>{"rank 0", "rank 1", "rank 2"}
                                            : std::vector<std::string>{}));
    const std::string large(3'000'000, 'x');
    const auto told = executor::broadcast_from(peers, 1, peers.rank() == 1 ? large : "");
    REQUIRE(told.ok());
    CHECK(told.value() == large);
    CHECK(peers.finish().ok());
  });
}

}  // namespace xpipe::tests
