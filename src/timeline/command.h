// `tokamak profile`: see docs/commands/profile.md.
#pragma once

#include "timeline/structure_graph.h"

namespace tk {

// argv[0] is the name shown in messages. Returns the exit code: 0 done, 1 the answer is no, 2 bad
// usage or input, 3 a bug of ours. Never throws.
int profile_command(int argc, char** argv, GraphReader read_graph = {});

}  // namespace tk
