#include "executor/processes/frame.h"

#include <cstddef>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <utility>

namespace xpipe::executor {

namespace {

constexpr std::uint32_t kMagic = 0x58504650;  // "XPFP"
constexpr std::size_t kAlignment = 64;

std::size_t padded(std::size_t bytes) {
  return (bytes + 7) / 8 * 8;
}

/// What the head's fixed part and the description of the tensors take.
std::size_t described_bytes(const Parcel& parcel) {
  std::size_t bytes = 32;
  for (const PackedTensor& tensor : parcel.tensors) {
    bytes += 16 + 8 * tensor.sizes.size();
  }
  return bytes;
}

class Writer {
 public:
  explicit Writer(Head& head) : head_(head) {}

  template <typename T>
  void put(T value) {
    std::memcpy(head_.data() + at_, &value, sizeof(T));
    at_ += sizeof(T);
  }

  void put_bytes(const std::byte* data, std::size_t bytes) {
    if (bytes > 0) {
      std::memcpy(head_.data() + at_, data, bytes);
    }
    at_ += padded(bytes);
  }

 private:
  Head& head_;
  std::size_t at_ = 0;
};

class Reader {
 public:
  explicit Reader(const Head& head) : head_(head) {}

  template <typename T>
  T get() {
    T value{};
    if (at_ + sizeof(T) <= kHeadBytes) {
      std::memcpy(&value, head_.data() + at_, sizeof(T));
    } else {
      good_ = false;
    }
    at_ += sizeof(T);
    return value;
  }

  void get_bytes(std::byte* into, std::size_t bytes) {
    if (bytes > kHeadBytes || at_ + padded(bytes) > kHeadBytes) {
      good_ = false;
    } else if (bytes > 0) {
      std::memcpy(into, head_.data() + at_, bytes);
    }
    at_ += padded(bytes);
  }

  void skip(std::size_t bytes) { at_ += bytes; }

  [[nodiscard]] bool good() const { return good_; }

 private:
  const Head& head_;
  std::size_t at_ = 0;
  bool good_ = true;
};

ir::Error bad_frame(std::string what) {
  return ir::make_error(ir::ErrorKind::Runtime, "bad-frame", "", std::move(what));
}

/// Aligned as vector instructions like it.
std::shared_ptr<std::byte> allocate(std::size_t bytes) {
  auto* memory =
      static_cast<std::byte*>(::operator new(bytes == 0 ? 1 : bytes, std::align_val_t{kAlignment}));
  return {memory, [](std::byte* p) { ::operator delete(p, std::align_val_t{kAlignment}); }};
}

}  // namespace

bool fits_in_head(const Parcel& parcel) {
  std::size_t bytes = described_bytes(parcel);
  for (const PackedTensor& tensor : parcel.tensors) {
    bytes += padded(tensor.bytes);
  }
  return bytes <= kHeadBytes;
}

std::vector<Frame> in_parts(Frame frame) {
  std::vector<PackedTensor>& tensors = frame.parcel.tensors;
  const std::size_t parts = tensors.empty() ? 0 : (tensors.size() - 1) / kMaxTensors;
  std::vector<Frame> frames;
  frames.reserve(parts + 1);
  for (std::size_t part = 0; part < parts; ++part) {
    const auto first = tensors.begin() + static_cast<std::ptrdiff_t>(part * kMaxTensors);
    frames.push_back(
        {.kind = FrameKind::Part,
         .segment = frame.segment,
         .task = frame.task,
         .parcel = {.tensors = {std::move_iterator(first),
                                std::move_iterator(first + std::ptrdiff_t{kMaxTensors})}}});
  }
  tensors.erase(tensors.begin(),
                tensors.begin() + static_cast<std::ptrdiff_t>(parts * kMaxTensors));
  frames.push_back(std::move(frame));
  return frames;
}

Head encode_head(const Frame& frame) {
  const std::vector<PackedTensor>& tensors = frame.parcel.tensors;
  XPIPE_CHECK(tensors.size() <= kMaxTensors) << tensors.size() << " tensors in one message";
  const bool inside = fits_in_head(frame.parcel);
  Head head{};
  Writer writer(head);
  writer.put(kMagic);
  writer.put(static_cast<std::uint8_t>(frame.kind));
  writer.put(static_cast<std::uint8_t>(tensors.size()));
  writer.put(static_cast<std::uint8_t>(inside ? 0 : 1));
  writer.put(std::uint8_t{0});
  writer.put(frame.segment);
  writer.put(frame.task);
  writer.put(std::uint64_t{0});
  writer.put(std::uint64_t{0});
  for (const PackedTensor& tensor : tensors) {
    XPIPE_CHECK(tensor.sizes.size() <= kMaxDimensions)
        << "a tensor of " << tensor.sizes.size() << " dimensions";
    writer.put(static_cast<std::uint64_t>(tensor.bytes));
    writer.put(static_cast<std::uint32_t>(tensor.type));
    writer.put(static_cast<std::uint32_t>(tensor.sizes.size()));
    for (const std::int64_t size : tensor.sizes) {
      writer.put(size);
    }
  }
  if (inside) {
    for (const PackedTensor& tensor : tensors) {
      writer.put_bytes(tensor.data, tensor.bytes);
    }
  }
  return head;
}

ir::Result<DecodedHead> describe_head(const Head& head) {
  Reader reader(head);
  if (reader.get<std::uint32_t>() != kMagic) {
    return bad_frame("what came is no frame of xpipe; do all ranks run the same build?");
  }
  DecodedHead decoded;
  const auto kind = reader.get<std::uint8_t>();
  const auto count = reader.get<std::uint8_t>();
  decoded.follow = reader.get<std::uint8_t>() != 0;
  (void)reader.get<std::uint8_t>();
  decoded.frame.segment = reader.get<std::uint32_t>();
  decoded.frame.task = reader.get<std::uint32_t>();
  (void)reader.get<std::uint64_t>();
  (void)reader.get<std::uint64_t>();
  if (kind > static_cast<std::uint8_t>(FrameKind::Bye) || count > kMaxTensors) {
    return bad_frame("a frame of kind " + std::to_string(kind) + " with " + std::to_string(count) +
                     " tensors");
  }
  decoded.frame.kind = static_cast<FrameKind>(kind);
  std::vector<PackedTensor>& tensors = decoded.frame.parcel.tensors;
  tensors.resize(count);
  for (PackedTensor& tensor : tensors) {
    const auto bytes = reader.get<std::uint64_t>();
    const auto type = reader.get<std::uint32_t>();
    const auto dimensions = reader.get<std::uint32_t>();
    if (bytes > kMaxTensorBytes || type > 0xff || dimensions > kMaxDimensions) {
      return bad_frame("a tensor of " + std::to_string(bytes) + " bytes, type " +
                       std::to_string(type) + " and " + std::to_string(dimensions) + " dimensions");
    }
    tensor.type = static_cast<std::uint8_t>(type);
    tensor.bytes = bytes;
    tensor.sizes.resize(dimensions);
    for (std::int64_t& size : tensor.sizes) {
      size = reader.get<std::int64_t>();
      if (size < 0) {
        return bad_frame("a tensor with a size of " + std::to_string(size));
      }
    }
  }
  if (!reader.good() || (!decoded.follow && !fits_in_head(decoded.frame.parcel))) {
    return bad_frame("a head that is longer than itself");
  }
  return decoded;
}

void give_memory(const Head& head, DecodedHead& decoded) {
  std::vector<PackedTensor>& tensors = decoded.frame.parcel.tensors;
  Reader reader(head);
  reader.skip(described_bytes(decoded.frame.parcel));
  decoded.memory.reserve(tensors.size());
  for (PackedTensor& tensor : tensors) {
    const std::shared_ptr<std::byte> memory = allocate(tensor.bytes);
    if (!decoded.follow) {
      reader.get_bytes(memory.get(), tensor.bytes);
    }
    decoded.memory.push_back(memory.get());
    tensor.data = memory.get();
    tensor.owner = memory;
  }
}

ir::Result<DecodedHead> decode_head(const Head& head) {
  ir::Result<DecodedHead> decoded = describe_head(head);
  if (decoded.ok()) {
    give_memory(head, decoded.value());
  }
  return decoded;
}

}  // namespace xpipe::executor
