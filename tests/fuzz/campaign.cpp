#include "tests/fuzz/campaign.h"

#include <algorithm>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace xpipe::fuzz {

namespace {

constexpr std::uint64_t kDefaultInputs = 100'000;
constexpr int kFatalSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGVTALRM};
constexpr int kMinimizerRuns = 2000;

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): no other thread
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// What a signal handler may read: which input is being read, and what to say of it.
char epitaph[512];         // NOLINT: written before the handler can run
std::string_view current;  // NOLINT: the input

void tell_input() {
  const auto say = [](const char* text, std::size_t size) {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, size);
  };
  say(epitaph, std::strlen(epitaph));
  say(current.data(), std::min<std::size_t>(current.size(), 2000));
  say("\n", 1);
}

void on_fatal(int signal) {
  const char* hang = "\nthe reader does not come to an end\n";
  if (signal == SIGVTALRM) {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, hang, std::strlen(hang));
  }
  tell_input();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// Tells of the input when the program dies, from construction to destruction.
class Guard {
 public:
  Guard() {
    // A stack that has overflowed is none to run a handler on.
    static char stack[64 * 1024];
    const stack_t alternative{.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof(stack)};
    ::sigaltstack(&alternative, &old_stack_);
    struct sigaction action = {};
    action.sa_handler = on_fatal;
    action.sa_flags = SA_ONSTACK;
    for (std::size_t i = 0; i < std::size(kFatalSignals); ++i) {
      ::sigaction(kFatalSignals[i], &action, &old_[i]);
    }
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_set_death_callback(tell_input);
#endif
  }

  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  ~Guard() {
    watch(0);
    for (std::size_t i = 0; i < std::size(kFatalSignals); ++i) {
      ::sigaction(kFatalSignals[i], &old_[i], nullptr);
    }
    ::sigaltstack(&old_stack_, nullptr);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_set_death_callback(nullptr);
#endif
  }

  /// `seconds` from now on; 0: no longer.
  static void watch(int seconds) {
    itimerval timer = {};
    timer.it_value.tv_sec = seconds;
    ::setitimer(ITIMER_VIRTUAL, &timer, nullptr);
  }

 private:
  stack_t old_stack_ = {};
  struct sigaction old_[std::size(kFatalSignals)] = {};
};

std::string rerun_line(const Reader& reader, std::uint64_t seed, std::uint64_t number) {
  return "XPIPE_FUZZ_SEED=" + std::to_string(seed) + " XPIPE_FUZZ_CASE=" + std::to_string(number) +
         " build/bin/xpipe_fuzz_tests -tc='*" + reader.name + "*mutated*' --no-skip";
}

Verdict read_guarded(const Reader& reader, const std::string& text, const std::string& rerun) {
  std::snprintf(epitaph, sizeof(epitaph), "\n%s: died at this input; again: %s\n",
                reader.name.c_str(), rerun.c_str());
  current = text;
  Guard::watch(kMostSeconds);
  Verdict verdict = reader.read(text);
  // What dies from here on is not the reader.
  epitaph[0] = '\0';
  current = {};
  return verdict;
}

/// What is broken without its figures, so that a smaller input counts as the same find.
std::string kind_of(const std::string& broken) {
  return broken.substr(0, broken.find(':'));
}

/// Leaves out ever smaller parts while the same claim stays broken (Zeller's ddmin, greedily).
std::string minimized(const Reader& reader, std::string text, const std::string& kind) {
  int runs = 0;
  for (std::size_t part = text.size() / 2; part > 0; part /= 2) {
    for (std::size_t at = 0; at + part <= text.size() && runs < kMinimizerRuns; ++runs) {
      const std::string less = text.substr(0, at) + text.substr(at + part);
      if (kind_of(reader.read(less).broken) == kind) {
        text = less;
      } else {
        at += part;
      }
    }
  }
  return text;
}

void note(Campaign& campaign,
          const Reader& reader,
          const std::string& text,
          const std::string& rerun) {
  const Verdict verdict = read_guarded(reader, text, rerun);
  ++campaign.inputs;
  campaign.accepted += verdict.accepted ? 1 : 0;
  if (text.size() >= 1024) {
    campaign.most_heap_per_byte =
        std::max(campaign.most_heap_per_byte,
                 static_cast<double>(verdict.heap.peak) / static_cast<double>(text.size()));
  }
  if (!verdict.broken.empty() && campaign.broken.empty()) {
    if (text.size() > kMaxInputBytes) {
      campaign.broken = verdict.broken;
      return;
    }
    const std::string small = minimized(reader, text, kind_of(verdict.broken));
    campaign.broken = verdict.broken + "\nagain: " + rerun + "\ninput of " +
                      std::to_string(text.size()) + " bytes, made smaller:\n" +
                      escaped(std::string_view(small).substr(0, 4000)) +
                      "\nthere: " + reader.read(small).broken;
  }
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n\n";
    } else if (byte < 0x20 || byte >= 0x7F) {
      char hex[8];
      std::snprintf(hex, sizeof(hex), "\\x%02X", byte);
      out += hex;
    } else {
      out += c;
    }
  }
  return out;
}

Campaign run_campaign(const Reader& reader) {
  const std::uint64_t seed = from_environment("XPIPE_FUZZ_SEED", 1);
  const std::uint64_t inputs = from_environment("XPIPE_FUZZ_INPUTS", kDefaultInputs);
  const std::uint64_t only = from_environment("XPIPE_FUZZ_CASE", inputs);
  const Guard guard;
  Campaign campaign;
  for (std::uint64_t i = only < inputs ? only : 0; i < inputs; ++i) {
    Random random(seed * 0x9E3779B97F4A7C15U + i * 0xD1B54A32D192ED03U);
    const std::string text = mutated(reader.seeds, reader.grain, random);
    if (only < inputs) {
      std::fprintf(stderr, "%s, input %" PRIu64 ":\n%s\n", reader.name.c_str(), i,
                   escaped(text).c_str());
    }
    note(campaign, reader, text, rerun_line(reader, seed, i));
    if (only < inputs) {
      break;
    }
  }
  return campaign;
}

Campaign run_every_byte(const Reader& reader) {
  const Guard guard;
  Campaign campaign;
  const std::string rerun = "build/bin/xpipe_fuzz_tests -tc='*" + reader.name + "*every byte*'";
  for (const std::string& seed : reader.seeds) {
    for (std::size_t at = 0; at < seed.size(); ++at) {
      note(campaign, reader, seed.substr(0, at), rerun);
      std::string flipped = seed;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
      note(campaign, reader, flipped, rerun);
    }
  }
  return campaign;
}

Campaign run_one(const Reader& reader, const std::string& text) {
  const Guard guard;
  Campaign campaign;
  note(campaign, reader, text, "build/bin/xpipe_fuzz_tests -tc='*megabytes*'");
  return campaign;
}

}  // namespace xpipe::fuzz
