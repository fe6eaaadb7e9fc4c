#include "executor/parcel.h"

#include <utility>

namespace xpipe::executor {

Parcel parcel_of(std::string bytes) {
  const auto owner = std::make_shared<const std::string>(std::move(bytes));
  PackedTensor tensor;
  tensor.sizes = {static_cast<std::int64_t>(owner->size())};
  tensor.data = reinterpret_cast<const std::byte*>(owner->data());
  tensor.bytes = owner->size();
  tensor.owner = owner;
  return {.tensors = {std::move(tensor)}};
}

std::string bytes_of(const Parcel& parcel) {
  std::string bytes;
  for (const PackedTensor& tensor : parcel.tensors) {
    bytes.append(reinterpret_cast<const char*>(tensor.data), tensor.bytes);
  }
  return bytes;
}

}  // namespace xpipe::executor
