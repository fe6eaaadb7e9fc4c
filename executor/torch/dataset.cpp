#include "executor/torch/dataset.h"

#include <algorithm>

namespace xpipe::executor::nn {

Samples normalized(const ImageSet& images, const std::string& kind) {
  const bool cifar = kind == "cifar10";
  const std::vector<float> mean =
      cifar ? std::vector<float>{0.4914F, 0.4822F, 0.4465F} : std::vector<float>{0.1307F};
  const std::vector<float> deviation =
      cifar ? std::vector<float>{0.2470F, 0.2435F, 0.2616F} : std::vector<float>{0.3081F};
  const std::int64_t count = images.count;
  const std::int64_t channels = images.channels;
  Samples samples;
  // from_blob borrows; to() copies.
  samples.inputs =
      torch::from_blob(
          const_cast<std::uint8_t*>(images.pixels.data()),  // NOLINT: torch's signature
          {count, channels, images.height, images.width}, torch::kUInt8)
          .to(torch::kFloat32)
          .div_(255.0);
  samples.inputs.sub_(torch::tensor(mean).view({1, channels, 1, 1}))
      .div_(torch::tensor(deviation).view({1, channels, 1, 1}));
  samples.labels =
      torch::from_blob(
          const_cast<std::uint8_t*>(images.labels.data()),  // NOLINT: torch's signature
          {count}, torch::kUInt8)
          .to(torch::kInt64);
  return samples;
}

Dataset normalized(const ImageFolder& folder) {
  return {.kind = folder.kind,
          .classes = kClasses,
          .train = normalized(folder.train, folder.kind),
          .test = normalized(folder.test, folder.kind)};
}

torch::Tensor gather(const torch::Tensor& source,
                     const std::vector<std::uint32_t>& order,
                     const SampleRange& range) {
  const torch::Tensor rows = torch::empty({static_cast<std::int64_t>(range.count)}, torch::kInt64);
  std::copy_n(order.begin() + range.begin, range.count, rows.data_ptr<std::int64_t>());
  return source.index_select(0, rows);
}

}  // namespace xpipe::executor::nn
