// Broken files through the binary, as a user meets them: status 3, nothing on stdout, and every
// fault of the file at once, with its place, what was found and what was expected (field cases F3
// to F6, H1, J5). What each reader refuses in detail is in tests/ir and tests/traces.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/app/run_xpipe.h"

namespace xpipe::app_test {
namespace {

struct BadFile {
  std::string name;
  std::string content;
  std::vector<std::string> said;  ///< each must stand on stderr
};

/// A profile of one layer whose forward is `forward`, as it is written.
std::string profile_with(const std::string& forward) {
  return "{\"format\": \"xpipe.profile\", \"version\": 1, \"samples\": 8,\n"
         " \"layers\": [\n"
         "  {\"name\": \"a\", \"forward_us\": " +
         forward +
         ", \"backward_us\": 2,\n"
         "   \"output_bytes\": 1, \"saved_bytes\": 1, \"parameter_bytes\": 1}]}\n";
}

std::string cluster_with(const std::string& link) {
  return "{\"format\": \"xpipe.cluster\", \"version\": 1, \"devices\": [{}, {}],\n"
         " \"default_link\": {" +
         link + "}}\n";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

const std::string kNode =
    "node1 -- Linear -- forward_compute_time=1.000, backward_compute_time=2.000, "
    "activation_size=4.0, parameter_size=4.000\n";

std::vector<BadFile> bad_files() {
  const std::string good = profile_with("1");
  return {
      // F3: numbers that are not numbers
      {"p.json", profile_with("NaN"), {"line 3, column 31", "found NaN, expected a finite number"}},
      {"p.json", profile_with("Infinity"), {"line 3", "found Infinity"}},
      {"p.json", profile_with("1e999"), {"line 3", "1e999 is larger than a double can hold"}},
      {"p.json", profile_with("-1"), {"/layers/0/forward_us", "found -1"}},
      {"p.json", profile_with("null"), {"/layers/0/forward_us", "found null"}},
      {"p.json", profile_with("\"5\""), {"/layers/0/forward_us", "found the string \"5\""}},
      {"p.json", profile_with("\"NaN\""), {"/layers/0/forward_us", "found the string \"NaN\""}},
      {"p.json", profile_with("true"), {"/layers/0/forward_us", "found true"}},
      {"p.json",
       profile_with("1e300"),
       {"/layers/0/forward_us", "found 1e300", "9223372036854775"}},
      // F4: missing is not zero; F5: the same key twice
      {"p.json",
       replaced(good, "\"backward_us\": 2,", ""),
       {"/layers/0/backward_us", "is missing"}},
      {"p.json", replaced(good, "backward_us", "bwdd"), {"/layers/0/bwdd", "unknown key"}},
      {"p.json", profile_with("1, \"forward_us\": 100000"), {"forward_us", "duplicate key"}},
      // F6: units
      {"c.json",
       cluster_with("\"bandwidth_bytes_per_s\": \"25Gb/s\""),
       {"/default_link/bandwidth_bytes_per_s", "found the string \"25Gb/s\""}},
      {"c.json", cluster_with("\"bandwidth\": 25"), {"/default_link/bandwidth", "unknown key"}},
      {"c.json", cluster_with("\"duplex\": \"maybe\""), {"/default_link/duplex", "\"maybe\""}},
      // H1: bytes
      {"p.json", replaced(good, "\"a\"", "\"\xFF\""), {"line 3, column 13", "UTF-8"}},
      {"p.json", "\xEF\xBB\xBF" + good, {"line 1, column 1", "byte order mark"}},
      {"g.txt", replaced(kNode, "Linear", "\xC3("), {"line 1", "UTF-8"}},
      // J5: an empty workload
      {"p.json", "", {"is empty"}},
      {"p.json", "{}", {"without a \"format\"", "xpipe.profile"}},
      {"p.json",
       R"({"format": "xpipe.profile", "version": 1, "samples": 1, "layers": []})",
       {"/layers", "no layers"}},
      {"p.json", good.substr(0, 100), {"line 3", "the file ends here"}},
      {"p.json", std::string(5000, '['), {"nested more than 64 deep"}},
      {"p.bin",
       std::string("\x7F"
                   "ELF\0\0",
                   6),
       {"of no known kind"}},
      // a graph.txt
      {"g.txt", kNode + kNode, {"line 2", "\"node1\" is there twice"}},
      {"g.txt", kNode + "\tnode1 -- node2\n", {"line 2", "\"node2\""}},
      {"g.txt", replaced(kNode, "1.000", "nan"), {"line 1", "forward_compute_time", "\"nan\""}},
      // schedules and traces
      {"s.tasks",
       "# xpipe.schedule 1\npolicy hand\ncompute 0: 0F0\n",
       {"line 3, column 12", "does not say which weights", "\"micro-batches ...\""}},
      {"s.json", R"({"format": "xpipe.schedule", "version": 1})", {"/tasks", "/lanes", "/edges"}},
      {"t.json", R"({"traceEvents": [{"ph": "X"}], "x": NaN})", {"line 1", "found NaN"}},
      {"p.csv", "0F0,0B0\n", {"not read by this version"}},
  };
}

TEST_CASE("xpipe check: a file that cannot be read is refused with status 3 and the place") {
  const ScratchFolder folder;
  for (const BadFile& bad : bad_files()) {
    CAPTURE(bad.content.substr(0, 300));
    const std::string path = folder.write(bad.name, bad.content);
    const Answer answer = run_xpipe({"check", path});
    CHECK(answer.status == 3);
    CHECK(answer.out.empty());
    CHECK(answer.err.find(path) != std::string::npos);
    for (const std::string& part : bad.said) {
      CHECK_MESSAGE(answer.err.find(part) != std::string::npos, "missing '", part,
                    "' in: ", answer.err);
    }
    const Answer json = run_xpipe({"check", "--json", path});
    CHECK(json.status == 3);
    CHECK(json.out.find("\"legal\": false") != std::string::npos);
    CHECK(json.err.empty());
  }
}

TEST_CASE("xpipe simulate: a broken profile, cluster or schedule is refused before any work") {
  const ScratchFolder folder;
  const std::string profile = folder.write("p.json", profile_with("NaN"));
  const std::string cluster = folder.write("c.json", cluster_with("\"duplex\": \"maybe\""));
  const std::string schedule = folder.write("s.tasks", "# xpipe.schedule 1\n");
  const std::string trace = folder.path("trace.json");
  const std::vector<std::vector<std::string>> lines = {
      {"--policy", "gpipe", "--stages", "1", "--profile", profile},
      {"--policy", "gpipe", "--stages", "2", "--cluster", cluster},
      {"--schedule", schedule},
  };
  for (std::vector<std::string> line : lines) {
    const std::string named = line.back();
    CAPTURE(named);
    line.insert(line.begin(), "simulate");
    line.insert(line.end(), {"--trace", trace});
    const Answer answer = run_xpipe(line);
    CHECK(answer.status == 3);
    CHECK(answer.out.empty());
    CHECK(answer.err.find(named + ": ") != std::string::npos);
  }
  CHECK(folder.list() == std::vector<std::string>{"c.json", "p.json", "s.tasks"});
}

TEST_CASE("xpipe check: all faults of one file are told at once") {
  const ScratchFolder folder;
  const std::string path =
      folder.write("p.json",
                   R"({"format": "xpipe.profile", "version": 1, "sampels": 8, "layers": [
          {"name": "a", "forward_us": -1, "backward_us": "2", "output_bytes": 1.5,
           "saved_bytes": 1, "parameter_bytes": null},
          {"name": "a", "forward_us": 1, "backward_us": 1, "output_bytes": 1, "saved_bytes": 1}],
         "edges": [["a", "b"]]})");
  const Answer answer = run_xpipe({"check", path});
  CHECK(answer.status == 3);
  for (const char* place : {"/samples", "/sampels", "/layers/0/forward_us", "/layers/0/backward_us",
                            "/layers/0/output_bytes", "/layers/0/parameter_bytes", "/layers/1/name",
                            "/layers/1/parameter_bytes", "/edges/0/1"}) {
    CHECK_MESSAGE(answer.err.find(path + ": " + place + ": ") != std::string::npos, "missing ",
                  place, " in: ", answer.err);
  }
}

TEST_CASE("xpipe check: a schedule on a device that is not there says so once a place (J5)") {
  const ScratchFolder folder;
  const std::string path =
      folder.write("s.tasks",
                   "# xpipe.schedule 1\npolicy hand\nmicro-batches 1\nmini-batches 1\ndevices 2\n"
                   "stage 0 device 5 slots 1\ncompute 5: 0F0[s0:v0] 0B0[s0:v0] 0STEP0[v0]\n");
  const Answer answer = run_xpipe({"check", path});
  CHECK(answer.status == 4);
  CHECK(answer.out.empty());
  const std::string said = "device 5 does not exist: expected one of 0 to 1";
  for (const char* place : {"stage 0: ", "lane \"compute 5\": "}) {
    const std::size_t at = answer.err.find(place + said);
    CHECK(at != std::string::npos);
    CHECK(answer.err.find(place + said, at + 1) == std::string::npos);
  }
}

TEST_CASE("xpipe: strange but good names pass through profile, plan and trace undamaged (H1)") {
  const ScratchFolder folder;
  const std::string profile = folder.write(
      "p.json", replaced(profile_with("1"), "\"a\"", R"("a\"b c\\d \u0001 \u00e9\u6f22 \n")"));
  const std::string trace = folder.path("t.json");
  CHECK(run_xpipe({"simulate", "--policy", "gpipe", "--stages", "1", "--profile", profile,
                   "--trace", trace})
            .status == 0);
  CHECK(run_xpipe({"check", trace}).status == 0);
  CHECK(read_all(trace).find(R"("a\"b c\\d \u0001 é漢 \n")") != std::string::npos);
}

}  // namespace
}  // namespace xpipe::app_test
