// Sweeps from the outside: a record is the single run, whatever the threads, the interruptions and
// the other set-ups.
#include <algorithm>
#include <csignal>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/app/run_xpipe.h"

namespace xpipe::app_test {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const Words kSweep = {"simulate", "--sweep"};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

/// The lines of a sweep's JSON, the header first.
std::vector<Json> records_of(const std::string& text) {
  std::vector<Json> records;
  for (const std::string& line : lines_of(text)) {
    records.push_back(Json::parse(line));
  }
  return records;
}

std::string swept_profile(int layers, int forward_us) {
  Json profile = {{"format", "xpipe.profile"}, {"version", 1}, {"name", "swept"},
                  {"provenance", "by hand"},   {"samples", 8}, {"layers", Json::array()}};
  for (int k = 0; k < layers; ++k) {
    profile["layers"].push_back({{"name", "layer" + std::to_string(k)},
                                 {"forward_us", forward_us + 10 * k},
                                 {"backward_us", 2 * forward_us},
                                 {"output_bytes", 1'000'000},
                                 {"saved_bytes", 2'000'000},
                                 {"parameter_bytes", 3'000'000}});
  }
  return profile.dump();
}

const char* const kSweptCluster = R"({"format": "xpipe.cluster", "version": 1, "name": "c",
  "devices": [{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d", "speed": 0.5}],
  "default_link": {"bandwidth_bytes_per_s": BANDWIDTH, "latency_us": 10}})";

std::string swept_cluster(const std::string& bandwidth) {
  std::string text = kSweptCluster;
  return text.replace(text.find("BANDWIDTH"), 9, bandwidth);
}

TEST_CASE("sweep: every record says what the single run says") {
  const ScratchFolder folder;
  const std::string profile = folder.write("p.json", swept_profile(6, 500));
  const std::string slow = folder.write("slow.json", swept_cluster("1e8"));
  const std::string fast = folder.write("fast.json", swept_cluster("1e10"));

  struct Case {
    Words sweep;
    std::vector<Words> singles;  ///< in the order of the records
  };

  const std::vector<Case> cases = {
      {{"--policy", "xpipe,gpipe", "--stages", "2,4", "--latency-us", "0,100", "--micro-batches",
        "3"},
       {{"--policy", "xpipe", "--stages", "2", "--latency-us", "0", "--micro-batches", "3"},
        {"--policy", "xpipe", "--stages", "2", "--latency-us", "100", "--micro-batches", "3"},
        {"--policy", "xpipe", "--stages", "4", "--latency-us", "0", "--micro-batches", "3"},
        {"--policy", "xpipe", "--stages", "4", "--latency-us", "100", "--micro-batches", "3"},
        {"--policy", "gpipe", "--stages", "2", "--latency-us", "0", "--micro-batches", "3"},
        {"--policy", "gpipe", "--stages", "2", "--latency-us", "100", "--micro-batches", "3"},
        {"--policy", "gpipe", "--stages", "4", "--latency-us", "0", "--micro-batches", "3"},
        {"--policy", "gpipe", "--stages", "4", "--latency-us", "100", "--micro-batches", "3"}}},
      {{"--policy", "pipedream", "--profile", profile, "--cluster", slow, "--cluster", fast,
        "--partition", "1,2,3", "--partition", "2,2,2", "--micro-batches", "4"},
       {{"--policy", "pipedream", "--profile", profile, "--partition", "1,2,3", "--micro-batches",
         "4", "--cluster", slow},
        {"--policy", "pipedream", "--profile", profile, "--partition", "1,2,3", "--micro-batches",
         "4", "--cluster", fast},
        {"--policy", "pipedream", "--profile", profile, "--partition", "2,2,2", "--micro-batches",
         "4", "--cluster", slow},
        {"--policy", "pipedream", "--profile", profile, "--partition", "2,2,2", "--micro-batches",
         "4", "--cluster", fast}}},
      {{"--policy", "xpipe", "--stages", "3", "--micro-batches", "2", "--set",
        "rounding=floor,half-up", "--set", "predict=forward", "--recompute", "none,stage"},
       {{"--policy", "xpipe", "--stages", "3", "--micro-batches", "2", "--set", "rounding=floor",
         "--set", "predict=forward", "--recompute", "none"},
        {"--policy", "xpipe", "--stages", "3", "--micro-batches", "2", "--set", "rounding=floor",
         "--set", "predict=forward", "--recompute", "stage"},
        {"--policy", "xpipe", "--stages", "3", "--micro-batches", "2", "--set", "rounding=half-up",
         "--set", "predict=forward", "--recompute", "none"},
        {"--policy", "xpipe", "--stages", "3", "--micro-batches", "2", "--set", "rounding=half-up",
         "--set", "predict=forward", "--recompute", "stage"}}},
  };
  for (const Case& c : cases) {
    const Answer answer = run_xpipe(kSweep + c.sweep + Words{"--json"});
    REQUIRE_MESSAGE(answer.status == 0, answer.err);
    const std::vector<Json> records = records_of(answer.out);
    REQUIRE(records.size() == c.singles.size() + 1);
    CHECK(records[0]["format"] == "xpipe.sweep");
    CHECK(records[0]["set_ups"] == c.singles.size());
    for (std::size_t i = 0; i < c.singles.size(); ++i) {
      CAPTURE(i);
      const Json& record = records[i + 1];
      CHECK(record["set_up"] == i);
      const Answer single = run_xpipe(Words{"simulate"} + c.singles[i] + Words{"--json"});
      REQUIRE_MESSAGE(single.status == 0, single.err);
      const Json run = Json::parse(single.out)["runs"][0];
      std::size_t compared = 0;
      for (const auto& [key, value] : record.items()) {
        if (key != "kind" && key != "set_up" && key != "axes") {
          CHECK_MESSAGE(run[key] == value, key);
          ++compared;
        }
      }
      CHECK(compared >= 20);
    }
  }
}

const Words kGrid = {"--policy", "gpipe,xpipe,pipedream", "--stages", "1,2,3,4", "--micro-batches",
                     "1,2,4",    "--latency-us",          "0,5,50"};

TEST_CASE("sweep: the same bytes on one, two and four threads, and however options are ordered") {
  const ScratchFolder folder;
  std::vector<std::string> texts;
  for (const char* threads : {"1", "2", "4"}) {
    const std::string file = folder.path(std::string("t") + threads + ".jsonl");
    REQUIRE(run_xpipe(kSweep + kGrid + Words{"--threads", threads, "-o", file}).status == 0);
    texts.push_back(read_all(file));
  }
  CHECK(lines_of(texts[0]).size() == 1 + 3 * 4 * 3 * 3);
  CHECK(texts[1] == texts[0]);
  CHECK(texts[2] == texts[0]);
  Words turned;
  for (std::size_t i = kGrid.size(); i > 0; i -= 2) {
    turned = turned + Words{kGrid[i - 2], kGrid[i - 1]};
  }
  const Answer answer = run_xpipe(kSweep + turned + Words{"--json"});
  const std::vector<std::string> other = lines_of(answer.out);
  const std::vector<std::string> first = lines_of(texts[0]);
  CHECK(std::equal(other.begin() + 1, other.end(), first.begin() + 1, first.end()));
}

TEST_CASE("sweep: a file cut anywhere is completed to the same bytes") {
  const ScratchFolder folder;
  const Words sweep = kSweep + Words{"--policy", "gpipe", "--stages", "1,2,3"};
  const std::string file = folder.path("s.jsonl");
  REQUIRE(run_xpipe(sweep + Words{"-o", file}).status == 0);
  const std::string whole = read_all(file);
  const std::size_t last = whole.rfind('\n', whole.size() - 2) + 1;
  // Nothing, inside and at the end of the header, around every line's end, and some of the last
  // line; tests/app/sweep_file_test.cpp cuts at every byte.
  std::vector<std::size_t> cuts = {0, 1, whole.find('\n'), whole.size()};
  for (std::size_t end = whole.find('\n'); end != std::string::npos;
       end = whole.find('\n', end + 1)) {
    cuts.insert(cuts.end(), {end, end + 1, std::min(end + 2, whole.size())});
  }
  for (std::size_t cut = last; cut < whole.size(); cut += 37) {
    cuts.push_back(cut);
  }
  for (const std::size_t cut : cuts) {
    CAPTURE(cut);
    static_cast<void>(folder.write("s.jsonl", whole.substr(0, cut)));
    const Answer answer = run_xpipe(sweep + Words{"-o", file});
    CHECK_MESSAGE(answer.status == 0, answer.err);
    CHECK(read_all(file) == whole);
  }
}

TEST_CASE("sweep: interrupted it ends with 130 and whole lines, and goes on from there") {
  const ScratchFolder folder;
  std::string latencies = "0";
  for (int us = 1; us < 20'000; ++us) {
    latencies += "," + std::to_string(us);
  }
  const Words sweep = kSweep + Words{"--policy",        "xpipe,gpipe", "--stages",     "4",
                                     "--micro-batches", "4",           "--latency-us", latencies};
  const std::string file = folder.path("s.jsonl");
  std::string before;
  for (const std::size_t lines : {3U, 200U}) {
    const Answer answer = run_xpipe_and_signal_at(sweep + Words{"-o", file}, file, lines, SIGINT);
    CHECK(answer.status == 130);
    CHECK(answer.out.empty());
    CHECK_MESSAGE(answer.err.find("interrupted after") != std::string::npos, answer.err);
    CHECK(answer.err.find("goes on") != std::string::npos);
    const std::string now = read_all(file);
    CHECK(now.starts_with(before));
    CHECK(now.size() > before.size());
    CHECK(now.ends_with("\n"));
    before = now;
  }
  const std::vector<Json> records = records_of(before);
  for (std::size_t i = 1; i < records.size(); ++i) {
    CHECK(records[i]["set_up"] == i - 1);
    CHECK(records[i]["axes"]["latency_us"] == i - 1);
  }
  CHECK(run_xpipe_and_signal(sweep + Words{"--json"}, "\"set_up\":9,", SIGINT).status == 130);
}

TEST_CASE("sweep: what is wrong with a set-up stands in its record, and the rest is answered") {
  const ScratchFolder folder;
  const std::string profile = folder.write("p.json", swept_profile(3, 500));
  const std::string file = folder.path("s.jsonl");
  // 4 stages of 3 layers; 16 micro-batches of 8 samples.
  const Answer answer =
      run_xpipe(kSweep + Words{"--policy", "gpipe", "--profile", profile, "--stages", "2,4",
                               "--micro-batches", "2,16", "-o", file});
  CHECK(answer.status == 2);
  CHECK(answer.out.find("4 set-ups") != std::string::npos);
  CHECK(answer.err.find("--micro-batches") != std::string::npos);
  const std::vector<Json> records = records_of(read_all(file));
  REQUIRE(records.size() == 5);
  CHECK_FALSE(records[1].contains("error"));
  CHECK(records[1]["makespan_ns"] > 0);
  for (std::size_t i = 2; i < 5; ++i) {
    CAPTURE(records[i].dump());
    REQUIRE(records[i].contains("error"));
    CHECK(records[i]["error"]["status"] == 2);
    CHECK_FALSE(records[i]["error"]["code"].get<std::string>().empty());
    CHECK_FALSE(records[i]["error"]["faults"].empty());
    CHECK_FALSE(records[i].contains("makespan_ns"));
  }
  // A schedule that waits for itself is worse than a combination that cannot be.
  const Answer blocked =
      run_xpipe(kSweep + Words{"--policy", "xpipe,gpipe", "--stages", "4", "--micro-batches", "4",
                               "--sends", "eager,blocking", "--json"});
  CHECK(blocked.status == 4);
  const std::vector<Json> sends = records_of(blocked.out);
  REQUIRE(sends.size() == 5);
  CHECK_FALSE(sends[1].contains("error"));
  CHECK(sends[2]["error"]["status"] == 4);
  CHECK(sends[2]["error"]["code"] == "cycle");
  CHECK_FALSE(sends[3].contains("error"));
}

TEST_CASE("sweep: values that can never be are refused at once, all of them") {
  struct Slip {
    Words words;
    int status;
    std::vector<std::string> said;
  };

  const ScratchFolder folder;
  const std::string broken = folder.write("broken.json", "{");
  const std::string missing = folder.path("missing.json");
  const std::vector<Slip> slips = {
      {{"--policy", "gpipe", "--stages", "2,4x", "--micro-batches", "1,0"},
       2,
       {"--stages", "'4x'", "--micro-batches", "'0'"}},
      {{"--policy", "gpipe", "--stages", "2,4,2"}, 2, {"--stages", "'2'", "twice"}},
      {{"--policy", "gpip,xpip", "--stages", "2"}, 2, {"'gpip'", "'xpip'"}},
      {{"--stages", "2"}, 2, {"--policy", "missing"}},
      {{"--policy", "gpipe", "--stages", "2", "--trace", "t.json"}, 2, {"--trace", "--sweep"}},
      {{"--policy", "gpipe", "--stages", "2", "--what-if"}, 2, {"--what-if", "--sweep"}},
      {{"--policy", "gpipe", "--stages", "2", "--set", "rounding"}, 2, {"--set", "KEY=VALUE"}},
      {{"--policy", "gpipe", "--stages", "2", "--set", "nothing=1"}, 2, {"nothing"}},
      {{"--policy", "gpipe", "--stage", "2"}, 2, {"--stage", "--stages"}},
      {{"--policy", "gpipe", "--stages", "2", "--threads", "0"}, 2, {"--threads", "'0'"}},
      {{"--policy", "gpipe", "--stages", "2", "-o", "no/folder/s.jsonl"}, 2, {"no/folder"}},
      {{"--policy", "gpipe", "--stages", "2", "-o", "."}, 2, {"."}},
      {{"--policy", "gpipe", "--stages", "2", "--cluster", broken, "--cluster", missing},
       3,
       {"broken.json", "missing.json"}},
  };
  for (const Slip& slip : slips) {
    std::string line;
    for (const std::string& word : slip.words) {
      line += " " + word;
    }
    CAPTURE(line);
    const Answer answer = run_xpipe(kSweep + slip.words);
    CHECK(answer.status == slip.status);
    for (const std::string& said : slip.said) {
      CHECK_MESSAGE(answer.err.find(said) != std::string::npos, "missing '", said,
                    "' in: ", answer.err);
    }
  }
  for (const char* option : {"--threads", "-o"}) {
    const Answer answer =
        run_xpipe({"simulate", "--policy", "gpipe", "--stages", "2", option, "4"});
    CHECK(answer.status == 2);
    CHECK(answer.err.find("--sweep") != std::string::npos);
  }
}

TEST_CASE("sweep: only its own file is gone on with") {
  const ScratchFolder folder;
  const std::string profile = folder.write("p.json", swept_profile(4, 500));
  const Words sweep = kSweep + Words{"--policy", "gpipe", "--profile", profile, "--stages", "1,2"};
  const std::string file = folder.path("s.jsonl");
  REQUIRE(run_xpipe(sweep + Words{"-o", file}).status == 0);
  const std::string whole = read_all(file);
  const auto refused = [&](const Words& words, const char* said) {
    const std::string before = read_all(file);
    const Answer answer = run_xpipe(words + Words{"-o", file});
    CHECK(answer.status == 2);
    CHECK_MESSAGE(answer.err.find(said) != std::string::npos, answer.err);
    CHECK(read_all(file) == before);
  };
  // Other options; other input under the same name; no sweep at all; a record of another set-up.
  refused(sweep + Words{"--micro-batches", "2"}, "options");
  static_cast<void>(folder.write("p.json", swept_profile(4, 501)));
  refused(sweep, "files");
  static_cast<void>(folder.write("p.json", swept_profile(4, 500)));
  static_cast<void>(folder.write("s.jsonl", "my notes\n"));
  refused(sweep, "not the file of a sweep");
  static_cast<void>(folder.write("s.jsonl", "my notes without an end"));
  refused(sweep, "not the file of a sweep");
  std::string wrong = whole;
  wrong.replace(wrong.find("\"set_up\":0"), 10, "\"set_up\":7");
  static_cast<void>(folder.write("s.jsonl", wrong));
  refused(sweep, "line 2");
  static_cast<void>(folder.write("s.jsonl", whole + whole.substr(whole.find('\n') + 1)));
  refused(sweep, "line 4");
}

TEST_CASE("sweep: a table for people, the fastest first where records go to a file") {
  const ScratchFolder folder;
  const Words sweep = kSweep + Words{"--policy", "gpipe,xpipe",     "--stages",
                                     "4",        "--micro-batches", "1,2,4,8,16,32"};
  const Answer all = run_xpipe(sweep);
  CHECK(all.status == 0);
  CHECK(all.out.starts_with("12 set-ups\n\npolicy  micro_batches  "));
  CHECK(all.out.find("gpipe") < all.out.find("xpipe"));
  const Answer best = run_xpipe(sweep + Words{"-o", folder.path("s.jsonl")});
  CHECK(best.out.find("the fastest") != std::string::npos);
  CHECK(best.out.find("xpipe") < best.out.find("gpipe"));
  CHECK(best.err.empty());
}

}  // namespace
}  // namespace xpipe::app_test
