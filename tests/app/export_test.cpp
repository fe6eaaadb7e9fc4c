// Exported weights, read by real PyTorch, which tests the model that it makes of them.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/app/run_xpipe.h"
#include "tests/python_with_torch.h"

namespace xpipe::app_test {
namespace {

TEST_CASE("xpipe train --export: PyTorch loads the weights and tests the same model") {
  const std::string python = tests::python_with_torch();
  if (python.empty()) {
    std::cout << tests::kNoPythonWithTorch;
    return;
  }
  const ScratchFolder folder;
  const std::string weights = folder.path("weights.pt");
  const std::string digits = in_tree("examples/data/digits");
  const Answer answer =
      run_xpipe({"train",   "--policy",        "xpipe",     "--model",      "mlp",  "--set",
                 "depth=3", "--set",           "hidden=16", "--data",       digits, "--stages",
                 "2",       "--micro-batches", "2",         "--batch-size", "100",  "--lr",
                 "0.01",    "--export",        weights,     "--json"});
  REQUIRE_MESSAGE(answer.status == 0, answer.err);
  const auto epoch = nlohmann::json::parse(answer.out).at("epochs").back();
  const std::string command = "'" + python + "' -W ignore '" + in_tree("tests/app/export_peer.py") +
                              "' '" + weights + "' '" + digits + "/t10k-images-idx3-ubyte.gz' '" +
                              digits + "/t10k-labels-idx1-ubyte.gz' > '" + folder.path("tested") +
                              "'";
  REQUIRE(std::system(command.c_str()) == 0);
  double loss = 0.0;
  double accuracy = 0.0;
  std::ifstream(folder.path("tested")) >> loss >> accuracy;
  CHECK(loss == doctest::Approx(epoch.at("test_loss").get<double>()).epsilon(1e-5));
  CHECK(accuracy == doctest::Approx(epoch.at("accuracy").get<double>()).epsilon(1e-6));
  CHECK(accuracy > 0.3);  // it has learnt something: ten classes
}

}  // namespace
}  // namespace xpipe::app_test
