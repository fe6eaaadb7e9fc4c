#include "app/schedule_files.h"

#include "ir/files.h"
#include "ir/schedule_json.h"
#include "ir/text.h"
#include "ir/validate.h"

namespace xpipe::app {

ir::Result<ir::Schedule> read_legal_schedule(const std::string& path) {
  const ir::Result<std::string> content = ir::read_file(path);
  if (!content.ok()) {
    return content.error();
  }
  ir::Result<ir::Schedule> schedule = path.ends_with(".tasks")
                                          ? ir::schedule_from_text(content.value(), path)
                                          : ir::schedule_from_json(content.value(), path);
  if (!schedule.ok()) {
    return schedule;
  }
  if (ir::Status legal = ir::check_legal(schedule.value()); !legal.ok()) {
    return legal.error();
  }
  return schedule;
}

}  // namespace xpipe::app
