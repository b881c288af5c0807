// Which kernel belongs to which block of which layer.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "timeline/step_ops.h"

namespace tk {

struct StreamSegment {
  std::int32_t stream = 0;
  bool primary = false;
  std::vector<std::uint32_t> ops;  // by time
};

struct Scores {
  double sequence = 1, body = 1, shape = 1, auxiliary_coverage = 1;
};

// One occurrence of a block in one layer. Ops are `index`es into StepOps.
struct Component {
  std::string id, type, phase;
  int layer = 0;        // of the model: with the layers of earlier phases
  int local_layer = 0;  // inside the phase
  int occurrence = 0;   // of the type, in time
  std::vector<StreamSegment> segments;
  std::vector<std::uint32_t> ops;  // of all segments, by time
  std::vector<std::uint32_t>
      displaced;  // of them: run elsewhere in time (BD-43), outside all numbers
  Scores scores;
};

struct Composition {
  std::vector<int> layers;
  std::vector<std::string> components;
};

struct Phase {
  std::string name;
  int layers = 0;
  std::vector<Composition> compositions;
};

struct Warning {
  std::string code, message;
};

struct Structure {
  bool found = false;
  std::string reason;  // why not
  std::string origin;  // auto:<rule>, samples, graph
  std::vector<Phase> phases;
  std::vector<std::string> expected;     // component types
  std::vector<Component> components;     // by phase, layer, time
  std::vector<std::int32_t> owner;       // per op: component, or -1
  std::vector<std::uint32_t> pre, post;  // unowned before the first and after the last layer
  std::vector<std::uint32_t> between;    // unowned elsewhere
  std::vector<Warning> warnings;
  std::string hint;      // model_hint
  bool blocked = false;  // a blocking code that was not accepted (BD-41): no page
};

// Fills owner, ids, occurrences, pre, post, between, and marks displaced streams (BD-43).
void finish_structure(const Timeline& t, const StepOps& ops, Structure& s);

// Ops of each stream by (start, index).
std::map<std::int32_t, std::vector<std::uint32_t>> ops_by_stream(const Timeline& t,
                                                                 const StepOps& ops);

// The three files of the skill (BD-30, BD-32, BD-40), supersets of theirs.
nlohmann::json structure_spec_json(const Structure& s);
nlohmann::json sample_ack_json(const Timeline& t, const StepOps& ops, const Structure& s);
nlohmann::json structure_draft_json(const Timeline& t, const StepOps& ops, const Structure& s);

}  // namespace tk
