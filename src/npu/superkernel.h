// Runs of kernels as one launch each (SuperKernel): which launches of a Plan make a segment, and
// what it gains (VN-62, superkernel.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "npu/work.h"

namespace tk {

// `scope`: attention, moe, layer, all, auto, or the path of a file with a module path a line
// (SK-10). Of each step's kernel the name of the scope it lies in, "" for none. TK1452 for a scope
// that is none of these, or that no kernel lies in.
std::vector<std::string> scopes_of(const Step& step, std::string_view scope);

struct Segments {
  sim::Plan plan;
  int segments = 0, launches = 0;  // launches in them: all but one a segment are saved
};

// Launches that follow each other on their stream in one scope become a segment; it ends before
// what waits for another stream (the cores it holds might be what is waited for), before what
// cannot be fused (SK-05) and where core limits change (SK-07). A run of one stays as it is
// (SK-11). `choose`: of each such run the cuts are chosen that gain most by `device` (SK-16).
Segments with_segments(sim::Plan plan, const std::vector<std::string>& scopes,
                       const sim::DeviceParams& device, bool choose);

}  // namespace tk
