// `xpipe train` on GPUs that are not there, in bfloat16, and pinned.
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/app/run_xpipe.h"

namespace xpipe::app_test {
namespace {

using Json = nlohmann::json;

std::vector<std::string> train(const std::vector<std::string>& more) {
  std::vector<std::string> command = {"train",
                                      "--policy",
                                      "xpipe",
                                      "--stages",
                                      "2",
                                      "--micro-batches",
                                      "2",
                                      "--data",
                                      in_tree("examples/data/digits"),
                                      "--batch-size",
                                      "1000"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

TEST_CASE("xpipe train --device cuda: without a GPU it ends with 2 and says what to use") {
  const Answer answer = run_xpipe(train({"--device", "cuda"}));
  if (answer.status == 0) {
    return;  // a machine with a GPU and all of LibTorch
  }
  CHECK(answer.status == 2);
  const bool says_why = answer.err.find("no CUDA device") != std::string::npos ||
                        answer.err.find("CUDA library cannot be loaded") != std::string::npos;
  CHECK_MESSAGE(says_why, answer.err);
  CHECK(answer.err.find("--device cpu") != std::string::npos);
  CHECK(answer.out.empty());
}

TEST_CASE("xpipe train: a device map belongs to --device cuda") {
  const Answer answer = run_xpipe(train({"--device-map", "0,0"}));
  CHECK(answer.status == 2);
  CHECK(answer.err.find("--device-map") != std::string::npos);
  CHECK(answer.err.find("the device is cpu") != std::string::npos);
}

TEST_CASE("xpipe train --dtype bf16: trains, takes less for slots, and says so") {
  const auto document = [](const char* dtype) {
    const Answer answer = run_xpipe(train({"--dtype", dtype, "--lr", "0.002", "--json"}));
    REQUIRE_MESSAGE(answer.status == 0, answer.err);
    return Json::parse(answer.out);
  };
  const Json narrow = document("bf16");
  const Json wide = document("float32");
  CHECK(narrow["dtype"] == "bf16");
  CHECK(wide["dtype"] == "float32");
  CHECK(narrow["weights_hash"] != wide["weights_hash"]);
  CHECK(narrow["epochs"][0]["loss"].get<double>() ==
        doctest::Approx(wide["epochs"][0]["loss"].get<double>()).epsilon(0.05));
  for (std::size_t k = 0; k < 2; ++k) {
    const Json& a = narrow["memory"][k];
    const Json& b = wide["memory"][k];
    CHECK(a["weight_bytes"] == b["weight_bytes"]);
    CHECK(a["optimizer_bytes"] == b["optimizer_bytes"]);
    // half the slots' bytes, and a copy of the master in half of its bytes
    CHECK(2 * a["slot_bytes"].get<long>() ==
          b["slot_bytes"].get<long>() + b["weight_bytes"].get<long>());
  }
}

TEST_CASE("xpipe train --dtype fp16: refused, with the reason and the way out") {
  const Answer answer = run_xpipe(train({"--dtype", "fp16"}));
  CHECK(answer.status == 2);
  CHECK(answer.out.empty());
  CHECK(answer.err.find("scaling of the loss") != std::string::npos);
  CHECK(answer.err.find("bf16") != std::string::npos);
}

TEST_CASE("xpipe train --loss mse: another loss, told apart from the usual one, in text and sums") {
  const auto run = [](const std::vector<std::string>& more) {
    std::vector<std::string> command{"--json", "--lr", "0.002"};
    command.insert(command.end(), more.begin(), more.end());
    const Answer answer = run_xpipe(train(command));
    REQUIRE_MESSAGE(answer.status == 0, answer.err);
    return Json::parse(answer.out);
  };
  const Json mse = run({"--loss", "mse", "--epochs", "2"});
  CHECK(mse["loss_function"] == "mse");
  CHECK(run({})["loss_function"] == "cross-entropy");
  // Ten classes, one of them right: an output of zeros has 0.1.
  const auto loss = mse["epochs"][1]["loss"].get<double>();
  CHECK(loss < mse["epochs"][0]["loss"].get<double>());
  CHECK(loss < 0.2);
  CHECK(mse["epochs"][1]["test_loss"].get<double>() < 0.2);
}

TEST_CASE("xpipe train --model unet: skips over several stages, on any number of them") {
  const auto run = [](const char* stages) {
    const Answer answer =
        run_xpipe({"train", "--policy", "gpipe", "--model", "unet", "--set", "width=2", "--stages",
                   stages, "--micro-batches", "2", "--data", in_tree("examples/data/digits"),
                   "--batch-size", "1000", "--json"});
    REQUIRE_MESSAGE(answer.status == 0, answer.err);
    return Json::parse(answer.out);
  };
  const Json one = run("1");
  const Json four = run("4");
  CHECK(four["partition"].size() == 4);
  CHECK(four["epochs"][0]["loss"].get<double>() ==
        doctest::Approx(one["epochs"][0]["loss"].get<double>()).epsilon(1e-5));
  CHECK(four["weights_hash"] == one["weights_hash"]);
  const Answer odd = run_xpipe(train({"--model", "unet", "--set", "depth=3"}));
  CHECK(odd.status == 2);
  CHECK(odd.err.find("multiples of 8") != std::string::npos);
}

TEST_CASE("xpipe train --pin: changes no bit, and the run says where its threads are") {
  const auto run = [](const char* pin) { return run_xpipe(train({"--pin", pin, "--json"})); };
  CHECK(Json::parse(run("auto").out)["weights_hash"] ==
        Json::parse(run("none").out)["weights_hash"]);
  const Answer none = run_xpipe(train({"--pin", "none"}));
  CHECK(none.out.starts_with("stage threads are not pinned (--pin none)\n"));
  const Answer pinned = run_xpipe(train({}));
  const bool says = pinned.out.starts_with("stage threads pinned to processors ") ||
                    pinned.out.starts_with("stage threads are not pinned: there are too few");
  CHECK_MESSAGE(says, pinned.out);
}

}  // namespace
}  // namespace xpipe::app_test
