#include "scheduler/progress.h"

#include <algorithm>
#include <cmath>

#include "ir/status.h"
#include "scheduler/rounding.h"

namespace xpipe::scheduler {

namespace {

__extension__ using Work = unsigned __int128;

Work work_of(ir::Nanos whole, std::uint32_t fraction) {
  return (static_cast<Work>(whole) << kSpeedBits) | fraction;
}

}  // namespace

Speed slowed(double factor) {
  if (!(factor > 1.0)) {
    return kFullSpeed;
  }
  const double speed = std::ceil(static_cast<double>(kFullSpeed) / factor);
  return std::max<Speed>(1, static_cast<Speed>(speed));
}

void Progress::set_speed(ir::Nanos now, Speed speed) {
  XPIPE_CHECK(now >= since_ && speed > 0 && speed <= kFullSpeed) << now << ", speed " << speed;
  const Left left = this->left(now);
  since_ = now;
  left_ = left.whole;
  fraction_ = left.fraction;
  speed_ = speed;
}

ir::Nanos Progress::end() const {
  const Work time = (work_of(left_, fraction_) + (speed_ - 1)) / speed_;
  const Work end = time + static_cast<Work>(since_);
  return end > static_cast<Work>(kTooLarge) ? kTooLarge : static_cast<ir::Nanos>(end);
}

Progress::Left Progress::left(ir::Nanos now) const {
  const Work work = work_of(left_, fraction_);
  const Work done = static_cast<Work>(now - since_) * speed_;
  const Work left = done < work ? work - done : 0;
  return {static_cast<ir::Nanos>(left >> kSpeedBits), static_cast<std::uint32_t>(left)};
}

}  // namespace xpipe::scheduler
