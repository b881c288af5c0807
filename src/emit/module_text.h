// One module as the text of a class, constants marked, so that modules of one structure have one
// text.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "emit/classes.h"

namespace tk::emit {

// How a child is made: the class and its arguments by name.
struct Construction {
  std::string name;
  std::vector<std::pair<std::string, std::string>> args;
  bool takes_config = false;  // before them
};

struct ModuleText {
  bool conflict = false;          // the phases take or give different values
  std::string origin;             // "modeling_llama.py:281"
  std::vector<std::string> init;  // statements of __init__
  std::vector<std::pair<std::string, std::vector<std::string>>> methods;  // signature, statements
  std::string skeleton;                                        // everything, without constants
  std::vector<std::pair<std::string, std::string>> constants;  // key and value, in order
  std::size_t n_init_constants = 0;
  std::set<std::string> helpers;
  bool uses_npu = false, unrolled = false;
  bool is_residual_norm = false;
};

ModuleText module_text(const Source& source, Region& prefill, Region& decode,
                       const std::function<Construction(const std::string&)>& construct);

// `replace` holds a text for each constant. Whether __init__ reads config, or passes it on:
bool reads_config(const ModuleText& module, const std::vector<std::string>& replace);

// `kept` are attributes and their values.
std::string class_text(const ModuleText& module, const std::string& name, bool takes_config,
                       const std::vector<std::string>& params,
                       const std::map<std::string, std::string>& kept,
                       const std::vector<std::string>& replace);

}  // namespace tk::emit
