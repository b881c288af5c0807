// All files of one profile into one Timeline: the kernel table and the trace on two threads.
#pragma once

#include "timeline/find.h"
#include "timeline/timeline.h"

namespace tk {

struct LoadOptions {
  bool trace = true;
  bool allow_truncated = false;
};

// Without a kernel table, kernels are made of the trace's device lane. A damaged side file is a
// note, not an error; damaged kernels or trace throw (TK0905..TK0909).
Timeline load_profile(const ProfileFiles& files, const LoadOptions& options);

// True for tasks of the device lane that compute or move data: not events, notifies, model marks.
bool is_kernel_task(std::string_view name, std::string_view task_type);

}  // namespace tk
