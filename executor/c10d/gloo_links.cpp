#include "executor/c10d/gloo_links.h"

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "executor/c10d/rendezvous.h"

namespace xpipe::executor {

namespace {

using ir::ErrorKind;
using std::chrono::duration_cast;
using std::chrono::hours;
using std::chrono::milliseconds;

/// A receive waits for as long as the peer lives; Processes tells when it does not.
constexpr milliseconds kForever = hours(24 * 365);
constexpr int kTag = 1;

std::string first_line(const char* text) {
  const std::string all = text;
  return all.substr(0, all.find('\n'));
}

/// What all links of a process stand on.
struct Group {
  c10::intrusive_ptr<c10d::Store> store;
  std::shared_ptr<c10d::ProcessGroupGloo> gloo;
  std::mutex posting;  ///< a group is for one thread at a time; waiting is not the group's
};

class GlooLink final : public Link {
 public:
  GlooLink(std::shared_ptr<Group> group, int peer) : group_(std::move(group)), peer_(peer) {}

  ir::Status send(std::span<const std::byte> bytes) override {
    auto* data = const_cast<std::byte*>(bytes.data());
    return transfer(sending_, data, bytes.size(), kForever,
                    [this](auto& tensors) { return group_->gloo->send(tensors, peer_, kTag); });
  }

  ir::Status receive(std::span<std::byte> bytes) override { return receive(bytes, kForever); }

  ir::Status receive(std::span<std::byte> bytes, milliseconds time_out) {
    return transfer(receiving_, bytes.data(), bytes.size(), time_out,
                    [this](auto& tensors) { return group_->gloo->recv(tensors, peer_, kTag); });
  }

  void abort() override {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    for (const auto& work : {sending_, receiving_}) {
      if (work) {
        work->abort();
      }
    }
  }

 private:
  using Work = c10::intrusive_ptr<c10d::Work>;

  template <typename Post>
  ir::Status transfer(
      Work& place, std::byte* data, std::size_t bytes, milliseconds time_out, Post&& post) {
    std::string what = "aborted";
    try {
      std::vector<at::Tensor> tensors = {
          at::from_blob(data, {static_cast<std::int64_t>(bytes)}, at::kByte)};
      Work work;
      {
        const std::lock_guard lock(mutex_);
        if (aborted_) {
          return lost(what);
        }
        const std::lock_guard one(group_->posting);
        work = place = post(tensors);
      }
      const bool completed = work->wait(time_out);
      const std::lock_guard lock(mutex_);
      place.reset();
      if (completed) {
        return {};
      }
    } catch (const std::exception& exception) {
      what = first_line(exception.what());
      const std::lock_guard lock(mutex_);
      place.reset();
    }
    return lost(what);
  }

  static ir::Error lost(const std::string& what) {
    return ir::make_error(ErrorKind::Runtime, "gloo", "", what);
  }

  const std::shared_ptr<Group> group_;
  const int peer_;
  std::mutex mutex_;
  bool aborted_ = false;  ///< guarded by mutex_, as the two that follow
  Work sending_;
  Work receiving_;
};

/// The network that Gloo's connections use: as for PyTorch, GLOO_SOCKET_IFNAME names it; a run that
/// meets on this machine's own address stays on it.
std::shared_ptr<gloo::transport::Device> device_for(const LaunchEnvironment& launch) {
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME"); interface != nullptr) {
    return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
  }
  if (launch.address == "localhost" || launch.address.starts_with("127.")) {
    return c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  }
  return c10d::ProcessGroupGloo::createDefaultDevice();
}

using Hello = std::array<std::byte, 64>;

Hello hello_of(std::uint32_t rank) {
  Hello hello{};
  const std::string text = "xpipe rank " + std::to_string(rank);
  std::memcpy(hello.data(), text.data(), text.size());
  return hello;
}

/// Every pair, the lower rank first; all ranks go through their pairs in ascending order, so that
/// none waits for another in a ring.
ir::Status greet(std::vector<std::unique_ptr<Link>>& links,
                 std::uint32_t rank,
                 milliseconds time_out) {
  for (std::uint32_t peer = 0; peer < links.size(); ++peer) {
    if (peer == rank) {
      continue;
    }
    auto& link = static_cast<GlooLink&>(*links[peer]);
    Hello answer{};
    const auto say = [&] { return link.send(hello_of(rank)); };
    const auto hear = [&] { return link.receive(answer, time_out); };
    ir::Status status = rank < peer ? say() : hear();
    if (status.ok()) {
      status = rank < peer ? hear() : say();
    }
    if (!status.ok() || answer != hello_of(peer)) {
      return ir::make_error(
          ErrorKind::Runtime, "rendezvous",
          "rank " + std::to_string(rank) + ", peer rank " + std::to_string(peer),
          "does not answer on the connection: " +
              (status.ok() ? "another rank is there" : status.error().diagnostics[0].message));
    }
  }
  return {};
}

}  // namespace

ir::Result<std::vector<std::unique_ptr<Link>>> connect_gloo(const LaunchEnvironment& launch,
                                                            const Patience& patience) {
  ir::Result<c10::intrusive_ptr<c10d::Store>> store = open_store(launch, patience);
  if (!store.ok()) {
    return store.error();
  }
  if (ir::Status joined = join(*store.value(), launch, patience); !joined.ok()) {
    return joined.error();
  }
  const auto time_out = duration_cast<milliseconds>(patience.time_out);
  auto group = std::make_shared<Group>();
  group->store = store.value();
  try {
    auto options = c10d::ProcessGroupGloo::Options::create(time_out);
    options->devices = {device_for(launch)};
    options->threads = 1;
    group->gloo = std::make_shared<c10d::ProcessGroupGloo>(
        store.value(), static_cast<int>(launch.rank), static_cast<int>(launch.ranks), options);
  } catch (const std::exception& exception) {
    return patience.cause_of(ir::make_error(
        ErrorKind::Runtime, "rendezvous", "rank " + std::to_string(launch.rank),
        "the ranks have met, and cannot all connect: " + first_line(exception.what())));
  }
  std::vector<std::unique_ptr<Link>> links(launch.ranks);
  for (std::uint32_t peer = 0; peer < launch.ranks; ++peer) {
    if (peer != launch.rank) {
      links[peer] = std::make_unique<GlooLink>(group, static_cast<int>(peer));
    }
  }
  if (ir::Status status = greet(links, launch.rank, time_out); !status.ok()) {
    return patience.cause_of(status.error());
  }
  return links;
}

}  // namespace xpipe::executor
