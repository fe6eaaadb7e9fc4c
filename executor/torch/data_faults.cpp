#include "executor/torch/data_faults.h"

#include <utility>

namespace xpipe::executor::nn {

ir::Error broken(const std::filesystem::path& file, std::string code, std::string what) {
  return ir::make_error(ir::ErrorKind::BadInput, std::move(code), file.string(), std::move(what));
}

}  // namespace xpipe::executor::nn
