#include "simulator/channel_queue.h"

#include "ir/status.h"

namespace xpipe::simulator {

using ir::index_of;
using ir::Nanos;
using ir::TaskId;
using scheduler::ChannelId;
using std::size_t;
using std::uint32_t;

namespace {

Nanos least_of_eight(const Nanos* v) {
  const Nanos a = std::min(std::min(v[0], v[1]), std::min(v[2], v[3]));
  const Nanos b = std::min(std::min(v[4], v[5]), std::min(v[6], v[7]));
  return std::min(a, b);
}

}  // namespace

void ChannelQueue::reset(std::span<const uint32_t> begin,
                         std::span<const ChannelId> channels,
                         size_t channel_count) {
  lane_begin_ = begin;
  lane_channels_ = channels;
  channels_.assign(channel_count, Channel{});
  for (const ChannelId channel : channels) {
    ++channels_[index_of(channel)].begin;  // counts lanes until the prefix sums below
  }
  uint32_t next = 0;
  for (Channel& channel : channels_) {
    const uint32_t lanes = channel.begin;
    channel.begin = next;
    next += lanes;
  }
  waiting_.resize(next);
  granted_.reserve(begin.size());
  instant_.clear();
  instant_.reserve(begin.size());
  level_begin_.clear();
  uint32_t nodes = 0;
  for (size_t width = channel_count;; width = (width + kFan - 1) / kFan) {
    level_begin_.push_back(nodes);
    nodes += width == 1 && level_begin_.size() > 1
                 ? 1
                 : static_cast<uint32_t>((width + kFan - 1) / kFan * kFan);
    if (width <= 1 && level_begin_.size() > 1) {
      break;
    }
  }
  root_ = level_begin_.back();
  tree_.assign(nodes + kFan, kNever);
}

void ChannelQueue::request(uint32_t lane, TaskId send, Nanos ready) {
  const Request request{.ready = ready, .send = send, .lane = lane};
  const uint32_t first = first_channel(lane);
  const std::span<const ChannelId> channels = channels_of(lane);
  if (channels.size() == 1 && channels_[first].count == 0) {  // the common case
    insert(first, request);
    update(first);
    return;
  }
  for (const ChannelId c : channels) {
    if (insert(index_of(c), request) && channels_[index_of(c)].count > 1) {
      update(first_channel(line(index_of(c))[1].lane));  // who was the first is no longer
    }
  }
  update(first);
}

void ChannelQueue::hold(uint32_t lane, Nanos until) {
  for (const ChannelId c : channels_of(lane)) {
    remove_first(index_of(c));
    channels_[index_of(c)].free_at = until;
  }
  for (const ChannelId c : channels_of(lane)) {
    update_with_first(index_of(c));
  }
}

/// Whether it is the first in line now.
bool ChannelQueue::insert(uint32_t channel, const Request& request) {
  Request* const begin = line(channel);
  Request* place = begin + channels_[channel].count++;
  while (place != begin && request.is_before(place[-1])) {
    *place = place[-1];
    --place;
  }
  *place = request;
  return place == begin;
}

void ChannelQueue::remove_first(uint32_t channel) {
  Request* const begin = line(channel);
  for (uint32_t i = 1; i < channels_[channel].count; ++i) {
    begin[i - 1] = begin[i];
  }
  --channels_[channel].count;
}

void ChannelQueue::update_with_first(uint32_t channel) {
  update(channel);
  if (channels_[channel].count > 0) {
    if (const uint32_t first = first_channel(line(channel)->lane); first != channel) {
      update(first);
    }
  }
}

/// Works out anew when the first in line on `channel` can start.
void ChannelQueue::update(uint32_t channel) {
  const Channel& own = channels_[channel];
  Nanos start = kNever;
  if (own.count > 0) {
    const Request& request = *line(channel);
    const std::span<const ChannelId> channels = channels_of(request.lane);
    if (index_of(channels.front()) == channel) {
      start = std::max(request.ready, own.free_at);
      for (const ChannelId c : channels.subspan(1)) {
        if (line(index_of(c))->send != request.send) {
          start = kNever;
          break;
        }
        start = std::max(start, channels_[index_of(c)].free_at);
      }
    }
  }
  set(channel, start);
}

void ChannelQueue::set(uint32_t channel, Nanos start) {
  uint32_t node = channel;
  if (tree_[node] == start) {
    return;
  }
  tree_[node] = start;
  for (size_t level = 1; level < level_begin_.size(); ++level) {
    const Nanos least =
        least_of_eight(tree_.data() + level_begin_[level - 1] + (node & ~(kFan - 1)));
    node >>= kFanBits;
    Nanos& parent = tree_[level_begin_[level] + node];
    if (parent == least) {
      return;
    }
    parent = least;
  }
}

uint32_t ChannelQueue::earliest_channel() const {
  const Nanos least = earliest();
  uint32_t node = 0;
  for (size_t level = level_begin_.size() - 1; level-- > 0;) {
    const Nanos* children = tree_.data() + level_begin_[level] + (node << kFanBits);
    uint32_t child = 0;
    while (children[child] != least) {
      ++child;
    }
    node = (node << kFanBits) + child;
  }
  return node;
}

size_t ChannelQueue::heap_bytes() const {
  return channels_.capacity() * sizeof(Channel) + waiting_.capacity() * sizeof(Request) +
         tree_.capacity() * sizeof(Nanos) +
         (level_begin_.capacity() + granted_.capacity() + instant_.capacity()) * sizeof(uint32_t);
}

}  // namespace xpipe::simulator
