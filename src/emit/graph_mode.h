// How the decode step is compiled for a graph mode: a file of its own, with a reason for each
// setting and for each that is left alone (GM-43, GM-55).
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tk::emit {

enum class ExeMode : unsigned char { eager, npugraph_ex, ge_graph };
std::string_view name_of(ExeMode mode);
// acl_graph and aclgraph are npugraph_ex (GM-01). False for any other text.
bool parse_exe_mode(std::string_view text, ExeMode* mode);

struct GraphOption {
  std::string_view name;    // of torch.compile or its options; "experimental_config.x" of GE
  std::string_view value;   // as Python has it; "" is left as the library has it
  std::string_view reason;  // begins with the rule
};
// What torch.compile is given, and what the backend's options are.
std::span<const GraphOption> compile_settings(ExeMode mode);
std::span<const GraphOption> backend_options(ExeMode mode);

std::string graph_mode_text(ExeMode mode);  // graph_mode.py; "" for eager
// Lines of the class of a step's metadata; "" for eager.
std::string metadata_for_graph_mode(ExeMode mode);
// The model's classes: for GE attention and its lengths are asked of the metadata, since a graph of
// GE takes them as tensors and eager prefill as lists (GM-20).
std::string for_graph_mode(std::string classes, ExeMode mode);
std::string graph_keys(ExeMode mode);  // of the YAML, beside exe_mode (GM-05)

}  // namespace tk::emit
