// Which combinations of --stages, --devices, --placement and --replicas are layouts, and which are
// refused with what message.
#include "scheduler/layout.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace xpipe::scheduler {
namespace {

using Numbers = std::vector<std::uint32_t>;

std::vector<int> devices_of(const Layout& layout) {
  std::vector<int> devices;
  for (const ir::DeviceId device : layout.placement) {
    devices.push_back(static_cast<int>(ir::index_of(device)));
  }
  return devices;
}

TEST_CASE("layout: what the options say") {
  struct Case {
    LayoutRequest request;
    std::uint32_t devices;
    std::vector<int> placement;
  };

  const std::vector<Case> cases = {
      {{4, {}, {}, {}}, 4, {0, 1, 2, 3}},
      {{4, 4, {}, {}}, 4, {0, 1, 2, 3}},
      {{4, 2, {}, {}}, 2, {0, 0, 1, 1}},
      {{4, 1, {}, {}}, 1, {0, 0, 0, 0}},
      {{5, 2, {}, {}}, 2, {0, 0, 0, 1, 1}},
      {{5, 3, {}, {}}, 3, {0, 0, 1, 1, 2}},
      {{4, {}, {0, 1, 1, 0}, {}}, 2, {0, 1, 1, 0}},
      {{4, 2, {1, 0, 0, 1}, {}}, 2, {1, 0, 0, 1}},
      {{3, {}, {}, {2, 1, 1}}, 4, {0, 1, 2, 3}},
      {{3, 4, {}, {1, 1, 2}}, 4, {0, 1, 2, 3}},
      {{2, {}, {0, 1, 0, 1}, {2, 2}}, 2, {0, 1, 0, 1}},
      {{2, {}, {}, {1, 1}}, 2, {0, 1}},
      {{2, 1, {}, {1, 1}}, 1, {0, 0}},
  };
  for (const Case& c : cases) {
    const auto layout = resolve_layout(c.request);
    REQUIRE_MESSAGE(layout.ok(), layout.error().to_string());
    CHECK(layout.value().devices == c.devices);
    CHECK(devices_of(layout.value()) == c.placement);
  }
  const Layout layout = resolve_layout({3, {}, {}, {2, 1, 1}}).value();
  REQUIRE(layout.by_stage().size() == 3);
  CHECK(layout.by_stage()[0] == std::vector{ir::DeviceId{0}, ir::DeviceId{1}});
  CHECK(layout.by_stage()[2] == std::vector{ir::DeviceId{3}});
}

TEST_CASE("layout: what cannot be is refused, with the option and both numbers") {
  struct Case {
    LayoutRequest request;
    std::vector<std::string> parts;
  };

  const std::vector<Case> cases = {
      {{0, {}, {}, {}}, {"--stages", "found 0"}},
      {{2, 3, {}, {}}, {"--devices", "3 devices for 2 stages", "--replicas"}},
      {{4, {}, {0, 1}, {}}, {"--placement", "2 devices for 4 stages"}},
      {{4, 4, {0, 1, 2, 5}, {}}, {"--placement", "found device 5 of 4 devices"}},
      {{4, 4, {0, 1, 2, 2}, {}}, {"--placement", "leaves device 3 of 4 devices without"}},
      {{2, {}, {0, 2}, {}}, {"--placement", "leaves device 1 of 3 devices without"}},
      {{3, {}, {}, {2, 1}}, {"--replicas", "2 numbers for 3 stages"}},
      {{2, {}, {}, {2, 0}}, {"--replicas", "found 0 for stage 1"}},
      {{2, 2, {}, {2, 1}}, {"--devices", "found 2 for 3 replicas", "expected 3"}},
      {{2, {}, {0, 0, 1}, {2, 1}}, {"--placement", "two replicas of stage 0 on device 0"}},
      {{2, {}, {0, 1}, {2, 1}}, {"--placement", "2 devices for 3 replicas"}},
      {{2, {}, {}, {65535, 65535}}, {"--replicas", "131070", "65535"}},
  };
  for (const Case& c : cases) {
    const auto layout = resolve_layout(c.request);
    REQUIRE_FALSE(layout.ok());
    CHECK(layout.error().kind == ir::ErrorKind::Usage);
    const std::string text = layout.error().to_string();
    CAPTURE(text);
    for (const std::string& part : c.parts) {
      CHECK(text.find(part) != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace xpipe::scheduler
