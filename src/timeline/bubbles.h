// Why nothing ran (BD §16.5): each gap of the device gets a class, from flows where they are there.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "timeline/step_ops.h"

namespace tk {

enum class Bubble : std::uint8_t { host, event_wait, engine_switch, collective_wait, unknown };
constexpr std::size_t bubble_classes = 5;
std::string_view bubble_name(Bubble b);

// When the host launched each kernel of the Timeline; -1 where no flow says.
std::vector<Ns> launch_times(const Timeline& t);

struct Gap {
  Ns from = 0, to = 0;
  Bubble kind = Bubble::unknown;
  std::uint32_t before = 0, after = 0;  // indices into Timeline::kernels
  Ns late_by = 0;                       // host: launch after the device went idle, ns
  std::int32_t stream = no_stream;      // event wait: the stream that waited
  Ns length() const { return to - from; }
};

// Gaps between the kernels of a set (any streams), in time order.
class GapFinder {
 public:
  explicit GapFinder(const Timeline& t);
  // `kernels`: indices into Timeline::kernels. `others`: collectives outside the set that may be
  // running meanwhile (collective wait).
  std::vector<Gap> gaps(std::vector<std::uint32_t> kernels) const;
  bool has_flows() const { return has_flows_; }
  Ns launch(std::uint32_t kernel) const { return launch_.empty() ? -1 : launch_[kernel]; }

 private:
  const Timeline& t_;
  std::vector<Ns> launch_;
  std::vector<const TraceSpan*> waits_;     // EVENT_WAIT, NOTIFY_WAIT by start
  std::vector<std::uint32_t> collectives_;  // by start
  Ns longest_wait_ = 0, longest_collective_ = 0;
  bool has_flows_ = false;
};

}  // namespace tk
