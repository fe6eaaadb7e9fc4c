#include "executor/processes/exchange.h"

#include <utility>

namespace xpipe::executor {

ir::Result<std::vector<std::string>> gather_at_zero(Peers& peers, std::string bytes) {
  std::vector<std::string> all;
  if (peers.rank() != 0) {
    if (ir::Status sent = peers.send(0, parcel_of(std::move(bytes))); !sent.ok()) {
      return sent.error();
    }
    return all;
  }
  all.reserve(peers.ranks());
  all.push_back(std::move(bytes));
  for (std::uint32_t from = 1; from < peers.ranks(); ++from) {
    const ir::Result<Parcel> parcel = peers.receive(from);
    if (!parcel.ok()) {
      return parcel.error();
    }
    all.push_back(bytes_of(parcel.value()));
  }
  return all;
}

ir::Result<std::string> broadcast_from(Peers& peers, std::uint32_t root, std::string bytes) {
  if (peers.rank() != root) {
    const ir::Result<Parcel> parcel = peers.receive(root);
    if (!parcel.ok()) {
      return parcel.error();
    }
    return bytes_of(parcel.value());
  }
  const Parcel parcel = parcel_of(bytes);
  for (std::uint32_t to = 0; to < peers.ranks(); ++to) {
    if (to != root) {
      if (ir::Status sent = peers.send(to, parcel); !sent.ok()) {
        return sent.error();
      }
    }
  }
  return bytes;
}

}  // namespace xpipe::executor
