// The classes of the modelling file: modules of the same structure are one class, and what differs
// between them are its arguments.
#pragma once

#include <string>
#include <vector>

#include "emit/body.h"
#include "emit/config_sizes.h"
#include "emit/emit.h"

namespace tk::emit {

struct Classes {
  std::string text;   // of all classes, the model's last
  std::string model;  // the name of the model's class
  std::set<std::string> helpers;
  bool uses_npu = false;
  std::vector<std::string> notes;
};

// What the classes are made from: both phases of one model.
struct Source {
  const Model* model = nullptr;
  const Phase* prefill = nullptr;
  const Phase* decode = nullptr;
  ModuleTypes types;
  ConfigNumbers numbers;  // of config.json
  ConfigReals reals;
  DType dtype = DType::f32;  // of most weights; others are written
};

// `conflict` gets a module whose phases take or give different values: it is to be written into
// its parent. Then the rest of the result means nothing.
Classes write_classes(const Source& source, std::string* conflict);

}  // namespace tk::emit
