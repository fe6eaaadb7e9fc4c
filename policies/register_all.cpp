#include "policies/register_all.h"

#include "policies/gpipe.h"
#include "policies/pipedream.h"
#include "policies/spectrain.h"
#include "policies/xpipe.h"

namespace xpipe::policies {

// One line a policy. The linker drops self-registering objects from static libraries.
void register_all(scheduler::PolicyRegistry& registry) {
  registry.add(xpipe());
  registry.add(gpipe());
  registry.add(pipedream());
  registry.add(spectrain());
}

}  // namespace xpipe::policies
