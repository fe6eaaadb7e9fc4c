// Whatever a file holds, a reader refuses it with a place or gives a value that it can write and
// read again; it never dies, runs on, or believes a number and allocates by it (tests/fuzz/reader.h
// states the bounds). What this found is told by name in the tests of the readers.
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/fuzz/campaign.h"

namespace xpipe::fuzz {

namespace {

const Reader& reader_called(const std::string& name) {
  for (const Reader& reader : readers()) {
    if (reader.name == name) {
      return reader;
    }
  }
  FAIL("no reader is called " << name);
  return readers().front();
}

void feed(const std::string& name) {
  const Campaign campaign = run_campaign(reader_called(name));
  std::cout << name << ": " << campaign.inputs << " inputs, " << campaign.accepted
            << " accepted, at most " << campaign.most_heap_per_byte << " bytes of heap a byte\n";
  CHECK_MESSAGE(campaign.broken.empty(), campaign.broken);
  // Mutations that only ever break a file would test one rule: its first.
  CHECK((campaign.inputs < 1000 || campaign.accepted * 1000 > campaign.inputs));
}

}  // namespace

TEST_CASE("bad input: every seed is accepted as it is") {
  for (const Reader& reader : readers()) {
    for (const std::string& seed : reader.seeds) {
      const Verdict verdict = reader.read(seed);
      CAPTURE(reader.name);
      CAPTURE(seed);
      CHECK_EQ(verdict.broken, "");
      CHECK(verdict.accepted);
    }
  }
}

TEST_SUITE("slow") {
  TEST_CASE("bad input: cut at every byte and with a bit of every byte flipped, all readers") {
    for (const Reader& reader : readers()) {
      CAPTURE(reader.name);
      const Campaign campaign = run_every_byte(reader);
      CHECK_MESSAGE(campaign.broken.empty(), campaign.broken);
    }
  }

  TEST_CASE("bad input: megabytes of one thing are read in linear work") {
    const auto many = [](std::size_t count, auto&& piece) {
      std::string text;
      for (std::size_t i = 0; i < count; ++i) {
        text += piece(std::to_string(i));
      }
      return text;
    };
    constexpr std::size_t kMany = 50'000;
    const std::string keys =
        many(kMany, [](const std::string& i) { return "\"k" + i + "\": \"v\", "; });
    const std::string traceless =
        R"({"metadata": {"format": "xpipe.trace", "options": {)" + keys + R"("z": ""}}, )";
    const std::string head = "# xpipe.schedule 1\n";
    const std::string node =
        " -- A -- forward_compute_time=1.0, backward_compute_time=1.0, activation_size=1.0, "
        "parameter_size=1.0\n";
    const std::vector<std::pair<std::string, std::string>> files = {
        {"profile", "{" + keys + "\"z\": 0}"},
        {"profile", "{" + keys + keys + "\"z\": 0}"},
        {"profile", "[" + std::string(1'000'000, '[')},
        {"profile", "{\"format\": \"" + std::string(2'000'000, 'x') + "\"}"},
        {"profile", R"({"layers": [)" + many(kMany, [](const auto&) { return "{}, "; }) + "{}]}"},
        {"cluster", R"({"devices": [)" + many(kMany, [](const auto&) { return "{}, "; }) + "{}]}"},
        {"timeline", traceless + R"("traceEvents": []})"},
        {"timeline", traceless + keys + R"("traceEvents": [)" +
                         many(kMany, [](const auto&) { return "{\"ph\": \"X\"}, "; }) + "{}]}"},
        {"trace", R"({"traceEvents": [)" +
                      many(kMany,
                           [](const std::string& i) {
                             return R"({"ph": "B", "pid": 1, "tid": 1, "ts": )" + i + "}, ";
                           }) +
                      "{}]}"},
        {"schedule text",
         head + many(kMany, [](const std::string& i) { return "option o" + i + "=1\n"; })},
        {"schedule text",
         head + "compute 0: " + many(kMany, [](const std::string& i) { return i + "Z "; })},
        {"schedule text",
         head + "compute 0: " + many(kMany, [](const auto&) { return "0F0[s0:v0] "; }) +
             "\nedges: " + many(kMany, [](const auto&) { return "0F0>0F0 "; })},
        {"schedule text", head + many(kMany, [](const auto&) { return "ids: 0-4294967295\n"; })},
        {"graph.txt", many(kMany, [&](const std::string& i) { return "n" + i + node; }) +
                          many(kMany, [](const std::string& i) { return "\tn" + i + " -- n0\n"; })},
        {"graph.txt", many(kMany, [&](const auto&) { return "n" + node; })},
    };
    for (const auto& [name, text] : files) {
      CAPTURE(name);
      CAPTURE(text.substr(0, 60));
      const Campaign campaign = run_one(reader_called(name), text);
      CHECK_MESSAGE(campaign.broken.empty(), campaign.broken.substr(0, 1000));
    }
  }

  TEST_CASE("bad input: profile, 100,000 mutated files") {
    feed("profile");
  }

  TEST_CASE("bad input: graph.txt, 100,000 mutated files") {
    feed("graph.txt");
  }

  TEST_CASE("bad input: cluster, 100,000 mutated files") {
    feed("cluster");
  }

  TEST_CASE("bad input: schedule text, 100,000 mutated files") {
    feed("schedule text");
  }

  TEST_CASE("bad input: schedule JSON, 100,000 mutated files") {
    feed("schedule JSON");
  }

  TEST_CASE("bad input: timeline, 100,000 mutated files") {
    feed("timeline");
  }

  TEST_CASE("bad input: trace, 100,000 mutated files") {
    feed("trace");
  }

  TEST_CASE("bad input: IDX images, 100,000 mutated files") {
    feed("IDX images");
  }

  TEST_CASE("bad input: CIFAR-10, 100,000 mutated files") {
    feed("CIFAR-10");
  }

  TEST_CASE("bad input: kind of file, 100,000 mutated files") {
    feed("kind of file");
  }
}

}  // namespace xpipe::fuzz
