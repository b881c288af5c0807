// Many candidates that differ from one Plan in a region: each runs from the last snapshot before
// the first difference (VN-83).
#pragma once

#include <cstddef>
#include <memory>

#include "npu/sim/simulate.h"

namespace tk::sim {

class Search {
 public:
  // Runs the base once; a snapshot about every `every` launches. One step, whatever options.steps
  // says.
  Search(Plan base, DeviceParams device, SimOptions options = {}, std::int32_t every = 128);
  ~Search();
  Search(const Search&) = delete;
  Search& operator=(const Search&) = delete;

  const Result& base() const;
  // The same result as simulate(candidate, device, options), to the last picosecond. Not
  // thread-safe.
  Result simulate(const Plan& candidate);
  // Of the last candidate: launches that it did not run again.
  std::int32_t reused() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tk::sim
