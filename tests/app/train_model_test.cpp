// Which model is trained on which data, from the outside: archives in and out, a text, and slips.
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/app/run_xpipe.h"

namespace xpipe::app_test {
namespace {

Answer train_model(const std::vector<std::string>& more, const std::string& batch_size = "1000") {
  std::vector<std::string> command{"train",        "--policy", "xpipe",
                                   "--batch-size", batch_size, "--json"};
  command.insert(command.end(), more.begin(), more.end());
  return run_xpipe(command);
}

bool says(const Answer& answer, const std::string& part) {
  return answer.out.empty() && answer.err.find(part) != std::string::npos;
}

const std::string kDigits = in_tree("examples/data/digits");
const std::string kArchive = in_tree("examples/models/small_cnn.pt");

TEST_CASE(
    "xpipe train: a TorchScript archive is trained on two stages and goes on where it ended") {
  const ScratchFolder folder;
  const std::string saved = folder.path("trained.pt");
  const Answer first = train_model({"--model", kArchive, "--save-model", saved, "--data", kDigits,
                                    "--stages", "2", "--micro-batches", "2", "--epochs", "2"});
  REQUIRE_MESSAGE(first.status == 0, first.err);
  CHECK(folder.list() == std::vector<std::string>{"trained.pt"});
  const Answer second =
      train_model({"--model", saved, "--data", kDigits, "--stages", "2", "--micro-batches", "2"});
  REQUIRE_MESSAGE(second.status == 0, second.err);
  const auto loss = [](const Answer& answer, std::size_t epoch) {
    return nlohmann::json::parse(answer.out)["epochs"][epoch]["loss"].get<double>();
  };
  CHECK(loss(second, 0) < loss(first, 1));
}

TEST_CASE("xpipe train: a text by the language model, cut in two") {
  const ScratchFolder folder;
  std::string text;
  for (int i = 0; i < 60; ++i) {
    text += "the cat sat on the mat. ";
  }
  const std::string corpus = folder.write("corpus.txt", text);
  const std::vector<std::string> command{
      "--model",         "gpt",   "--data",  corpus,  "--set",      "layers=2", "--set",
      "width=16",        "--set", "heads=2", "--set", "sequence=8", "--stages", "2",
      "--micro-batches", "2",     "--lr",    "0.01",  "--epochs",   "2"};
  std::vector<std::string> by_bytes = command;
  by_bytes.insert(by_bytes.end(), {"--tokens", "bytes"});
  for (const std::vector<std::string>& arguments : {command, by_bytes}) {
    const Answer answer = train_model(arguments, "16");
    REQUIRE_MESSAGE(answer.status == 0, answer.err);
    const auto run = nlohmann::json::parse(answer.out);
    CHECK(run["epochs"][1]["loss"].get<double>() < run["epochs"][0]["loss"].get<double>());
  }
}

TEST_CASE("xpipe train: slips in model and data are told with the way out, before any work") {
  const ScratchFolder folder;
  Answer answer = train_model({"--model", "lenet", "--data", kDigits});
  CHECK(answer.status == 2);
  CHECK(says(answer, "did you mean lenet5?"));
  answer = train_model({"--model", "mlp", "--save-model", folder.path("x.pt"), "--data", kDigits});
  CHECK(answer.status == 2);
  CHECK(says(answer, "--save-model"));
  answer =
      train_model({"--model", kArchive, "--save-model", folder.path("no/x.pt"), "--data", kDigits});
  CHECK(answer.status == 2);
  answer = train_model({"--model", folder.path("none.pt"), "--data", kDigits});
  CHECK(answer.status == 3);
  CHECK(says(answer, "none.pt"));
  answer = train_model({"--model", "mlp", "--augment", "crop,turn", "--data", kDigits});
  CHECK(answer.status == 2);
  CHECK(says(answer, "turn"));
  answer = train_model({"--model", "gpt", "--data", kDigits});
  CHECK(answer.status == 3);
  CHECK(says(answer, "no .txt file"));
  CHECK(folder.list().empty());
  const std::string corpus = folder.write("corpus.txt", std::string(2000, 'a') + "b");
  answer = train_model({"--model", "gpt", "--set", "tie=true", "--set", "sequence=4", "--set",
                        "width=8", "--data", corpus, "--stages", "2"},
                       "16");
  CHECK(answer.status == 2);
  CHECK(says(answer, "they share weights"));
}

}  // namespace
}  // namespace xpipe::app_test
