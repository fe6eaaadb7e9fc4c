#include "ir/files.h"

#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ir/file_kind.h"
#include "ir/profile_json.h"
#include "ir/schedule_json.h"
#include "tests/ir/schedules.h"
#include "tests/scratch_folder.h"

namespace xpipe::ir {

TEST_CASE("files: what is written is read back, replaced whole, with nothing left beside it") {
  const xpipe::tests::ScratchFolder folder;
  const std::string path = folder.path("out.json");
  for (const std::string& content : {std::string("first"), std::string(),
                                     std::string("a\0b\xFF", 4), std::string(300000, 'x')}) {
    REQUIRE(write_file(path, content).ok());
    const Result<std::string> back = read_file(path);
    REQUIRE(back.ok());
    CHECK(back.value() == content);
    CHECK_EQ(folder.list().size(), 1U);
  }
}

TEST_CASE("files: a replaced file keeps its mode, a link keeps pointing") {
  const xpipe::tests::ScratchFolder folder;
  const std::string path = folder.path("out");
  REQUIRE(write_file(path, "a").ok());
  REQUIRE(::chmod(path.c_str(), 0640) == 0);
  std::filesystem::create_symlink(path, folder.path("link"));
  REQUIRE(write_file(folder.path("link"), "b").ok());
  CHECK(std::filesystem::is_symlink(folder.path("link")));
  CHECK_EQ(read_file(path).value(), "b");
  struct stat status = {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK_EQ(status.st_mode & 0777, 0640);
}

TEST_CASE("files: a device is written to, not replaced") {
  REQUIRE(write_file("/dev/null", "x").ok());
  CHECK(check_writable("/dev/null").ok());
  CHECK(std::filesystem::is_character_file("/dev/null"));
}

TEST_CASE("files: a missing file and a directory cannot be read, and the path is said") {
  const xpipe::tests::ScratchFolder folder;
  const Result<std::string> missing = read_file(folder.path("nothing"));
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().kind == ErrorKind::BadInput);
  CHECK_EQ(missing.error().diagnostics[0].where, folder.path("nothing"));
  CHECK(missing.error().to_string().find("No such file or directory") != std::string::npos);
  CHECK(read_file(folder.path()).error().to_string().find("is a directory") != std::string::npos);
}

TEST_CASE("files: an output that cannot be written is found before, and nothing is left behind") {
  const xpipe::tests::ScratchFolder folder;
  REQUIRE(write_file(folder.path("old"), "old").ok());
  CHECK(check_writable(folder.path("old")).ok());
  CHECK(check_writable(folder.path("new")).ok());
  CHECK_EQ(folder.list().size(), 1U);
  CHECK_EQ(read_file(folder.path("old")).value(), "old");
  for (const std::string& path : {folder.path(), std::string("."), folder.path("missing/out"),
                                  folder.path("old/out"), std::string()}) {
    CAPTURE(path);
    const Status status = check_writable(path);
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().kind == ErrorKind::Usage);
    CHECK(status.error().to_string().find(path) != std::string::npos);
    CHECK_FALSE(write_file(path, "x").ok());
  }
}

TEST_CASE("files: a read-only directory is told before, and its files stay as they are") {
  if (::geteuid() == 0) {
    std::cout << "[SKIPPED] permissions do not bind root: no read-only directory tried\n";
    return;
  }
  const xpipe::tests::ScratchFolder folder;
  REQUIRE(write_file(folder.path("old"), "old").ok());
  REQUIRE(::chmod(folder.path().c_str(), 0500) == 0);
  CHECK_FALSE(check_writable(folder.path("new")).ok());
  CHECK_FALSE(write_file(folder.path("old"), "x").ok());
  REQUIRE(::chmod(folder.path().c_str(), 0700) == 0);
  CHECK_EQ(read_file(folder.path("old")).value(), "old");
}

TEST_CASE("file kind: told by content, schedules in text form by suffix") {
  struct Case {
    std::string path;
    std::string content;
    FileKind kind;
  };

  const Schedule schedule = tests::parsed(tests::kTwoStages);
  Profile profile{.name = "p", .provenance = "", .samples = 1, .layers = {}, .edges = {}};
  for (const Case& c : std::vector<Case>{
           {"a.tasks", "", FileKind::ScheduleText},
           {"a.txt", std::string(tests::kTwoStages), FileKind::ScheduleText},
           {"a.txt", schedule_to_json(schedule), FileKind::ScheduleJson},
           {"a.csv", profile_to_json(profile), FileKind::Profile},
           {"a", R"( {"name": "format", "version": 1, "format" : "xpipe.cluster")",
            FileKind::Cluster},
           {"a", R"({"x": {"format": "xpipe.cluster"}})", FileKind::OtherJson},
           {"a", R"({"format": "xpipe.nothing"})", FileKind::OtherJson},
           {"a", R"({"a\"": "traceEvents", "traceEvents": [)", FileKind::ChromeTrace},
           {"a", "[{\"ph\": \"X\"}]", FileKind::ChromeTrace},
           {"a", "[1, 2]", FileKind::OtherJson},
           {"a", "node1 -- Input -- forward_compute_time=1", FileKind::PipedreamGraph},
           {"a", "0F0,0F1,,0B0\n", FileKind::PytorchCsv},
           {"a", ",1F0,1B0", FileKind::PytorchCsv},
           {"a", "(3F1;3B0)OVERLAP_F_B,0B0", FileKind::PytorchCsv},
           {"a", "0UNSHARD", FileKind::PytorchCsv},
           {"a", "hello, world", FileKind::Unknown},
           {"a", "1,2,3", FileKind::Unknown},
           {"a", " \n", FileKind::Unknown},
           {"a", "{\"a", FileKind::OtherJson},
           {"a", "{\"a\\", FileKind::OtherJson},
       }) {
    CAPTURE(c.content);
    CHECK_EQ(kind_name(file_kind(c.path, c.content)), kind_name(c.kind));
  }
}

}  // namespace xpipe::ir
