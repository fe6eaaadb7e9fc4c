// What several processes refuse: whatever one rank finds, all end with it, named, before a step is
// made.
#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/app/run_ranks.h"
#include "tests/app/run_xpipe.h"

namespace xpipe::app_test {
namespace {

namespace fs = std::filesystem;

Words refusable(const Words& more) {
  return joined(train_on_digits({"--policy", "gpipe", "--batch-size", "1000", "--stages", "2"}),
                more);
}

/// Both ranks of a run that cannot be end with `status` and say all of `texts`.
void check_refused(const Words& of_0, const Words& of_1, int status, const Words& texts) {
  RankedRun run(2);
  run.start(0, of_0);
  run.start(1, of_1);
  for (const auto& [rank, answer] : run.wait_all()) {
    CAPTURE(rank);
    CHECK(answer.status == status);
    CHECK(answer.out.empty());
    for (const std::string& text : texts) {
      CAPTURE(text);
      CHECK_MESSAGE(answer.err.find(text) != std::string::npos, answer.err);
    }
  }
}

}  // namespace

TEST_CASE("processes: whatever decides bits and is not the same is named with both values") {
  struct Case {
    Words of_0;
    Words of_1;
    std::vector<std::string> said;
  };

  // All that differs is named at once.
  const std::vector<Case> cases = {
      {{"--lr-schedule", "step", "--lr-step-every", "5", "--loss-reduction", "sum", "--last-batch",
        "drop", "--micro-batches", "2"},
       {"--lr-schedule", "step", "--lr-step-every", "6"},
       {"--lr-step-every: is not the same everywhere: 5 on rank 0; 6 on rank 1",
        "--loss-reduction: is not the same everywhere: sum on rank 0; mean on rank 1",
        "--last-batch: ", "--micro-batches: "}},
      {{"--warm-up", "2", "--dtype", "bf16", "--augment", "flip", "--no-stop-on-nan", "--set",
        "depth=3", "--epochs", "2", "--momentum", "0.5", "--optimizer", "sgd"},
       {"--lr-schedule", "cosine"},
       {"--warm-up: is not the same everywhere: 2 on rank 0; 0 on rank 1",
        "--dtype: is not the same everywhere: bf16 on rank 0; float32 on rank 1",
        "--augment flip: ", "--stop-on-nan: ", "--set depth: ", "--epochs: ", "--lr-schedule: ",
        "--optimizer: ", "--momentum: "}},
      {{"--clip-norm", "0.5", "--accumulate", "2", "--recompute", "stage", "--partition", "2,6"},
       {"--clip-norm", "0.25", "--partition", "3,5", "--sends", "blocking"},
       {"option clip-norm: ", "--accumulate: ", "schedule: ", "--sends: ", "partition: "}},
  };
  for (const Case& c : cases) {
    check_refused(refusable(c.of_0), refusable(c.of_1), 5, c.said);
  }
}

TEST_CASE("processes: exports and checkpoints that one rank alone asks for are named") {
  const ScratchFolder folder;
  check_refused(refusable({"--export", folder.path("w.pt")}), refusable({}), 5, {"--export: "});
  check_refused(refusable({"--checkpoint", folder.path("c"), "--checkpoint-every", "2"}),
                refusable({"--checkpoint", folder.path("c"), "--checkpoint-every", "3"}), 5,
                {"--checkpoint-every: "});
}

TEST_CASE("processes: data of one rank with one other label are found out") {
  const ScratchFolder folder;
  const std::string copy = folder.path("digits");
  const auto text = [&](char last) {
    std::string corpus;
    for (int i = 0; i < 200; ++i) {
      corpus += "line " + std::to_string(i) + " ";
    }
    return corpus + last;
  };
  const auto of = [&](const std::string& data) {
    return Words{"train", "--policy",     "gpipe", "--model",  "gpt",   "--set",       "layers=1",
                 "--set", "width=8",      "--set", "heads=2",  "--set", "sequence=16", "--data",
                 data,    "--batch-size", "40",    "--stages", "2"};
  };
  std::string other = text('a');
  std::swap(other[40], other[50]);  // the same letters, elsewhere
  check_refused(of(folder.write("a.txt", text('a'))), of(folder.write("b.txt", other)), 5,
                {"content of the data: is not the same everywhere"});
}

TEST_CASE("processes: data or a model that one rank lacks end all, with its status") {
  const ScratchFolder folder;
  Words lost = refusable({});
  *(std::find(lost.begin(), lost.end(), "--data") + 1) = folder.path("nothing");
  check_refused(refusable({}), lost, 3, {"rank 1"});
  check_refused(lost, refusable({}), 3, {"rank 0"});
}

TEST_CASE("processes: another model than the checkpoint's, a damaged or a missing one, end all") {
  const ScratchFolder folder;
  const std::string place = folder.path("c");
  REQUIRE(run_xpipe(refusable({"--checkpoint", place})).status == 0);
  const Words wider = {"--set", "depth=3", "--epochs", "2", "--resume", place};
  check_refused(refusable(wider), refusable(wider), 3, {"model.depth"});
  const Words none = {"--epochs", "2", "--resume", folder.path("none")};
  check_refused(refusable(none), refusable(none), 3, {folder.path("none")});
  fs::resize_file(place + "/" + "mini-batch-000000004/layer-001.pt", 100);
  const Words again = {"--epochs", "2", "--resume", place};
  check_refused(refusable(again), refusable(again), 3, {"layer-001.pt"});
}

TEST_CASE("processes: outputs that rank 0 cannot write end all, though the others have none") {
  const ScratchFolder folder;
  const std::string nowhere = folder.path("none") + "/x";
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--metrics", nowhere}, nowhere},
      {{"--export", nowhere}, nowhere},
      {{"--checkpoint", folder.write("file", "") + "/c"}, "/c"},
      {{"--save-model", folder.path("m.pt")}, "--save-model"},
  };
  for (const auto& [words, said] : cases) {
    CAPTURE(said);
    check_refused(refusable(words), refusable(words), 2, {said});
  }
}

}  // namespace xpipe::app_test
