#include "import/pt2_signature.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <unordered_set>

#include "base/error.h"

namespace tk {
namespace {

// The name inside {"arg": {"name": ...}} or {"arg": {"as_tensor": {"name": ...}}}; nothing when it
// is no tensor.
std::optional<std::string_view> arg_name(const json::Value& spec) {
  const json::Value arg = spec["arg"];
  if (auto name = arg.find("name")) return name->string();
  if (auto tensor = arg.find("as_tensor")) return (*tensor)["name"].string();
  return std::nullopt;
}

bool is_plain(std::string_view name) {
  return !name.empty() && name.size() < 200 &&
         std::all_of(
             name.begin(), name.end(),
             [](char c) {
               return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
             });
}

// Of a weight: what the text form can quote.
bool is_printable(std::string_view name) {
  return name.size() < 1000 &&
         std::none_of(
             name.begin(), name.end(),
             [](char c) { return c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' '; });
}

}  // namespace

std::vector<Pt2Input> read_inputs(const json::Value& signature) {
  std::vector<Pt2Input> out;
  std::unordered_set<std::string_view> weights;
  for (const json::Value entry : signature["input_specs"].elements())
    for (const json::Member m : entry.members()) {
      Pt2Input spec{m.name, {}, {}};
      if (m.name == "parameter") spec.name = m.value["parameter_name"].string();
      if (m.name == "buffer") spec.name = m.value["buffer_name"].string();
      if (m.name == "tensor_constant") spec.name = m.value["tensor_constant_name"].string();
      if (m.name == "constant_input") continue;  // a Python value: the graph holds it already
      if (!spec.is_weight() && m.name != "user_input")
        throw UserError("TK0206", cat("the input at ", entry.path(), " is of kind '", m.name,
                                      "', which is not supported"))
            .at(entry.file());
      const auto name = arg_name(m.value);
      if (!name) {
        const json::Value arg = m.value["arg"];
        if (arg.find("as_sym_int") || arg.find("as_sym_float") || arg.find("as_custom_obj"))
          throw UserError("TK0206", cat("the input at ", entry.path(), " is not a tensor"))
              .at(entry.file())
              .help("capture a forward whose arguments are tensors");
        continue;  // None or a constant
      }
      spec.value = *name;
      if (spec.is_weight() ? !is_printable(spec.name) : !is_plain(spec.value))
        throw UserError("TK0205",
                        cat("the input at ", entry.path(), " is called '",
                            (spec.is_weight() ? spec.name : spec.value).substr(0, 60), "'"))
            .at(entry.file());
      if (spec.is_weight() && !weights.insert(spec.name).second)
        throw UserError("TK0205", cat("two inputs are the weight '", spec.name, "'"))
            .at(entry.file());
      out.push_back(spec);
    }
  return out;
}

std::vector<std::string_view> read_outputs(const json::Value& signature) {
  std::vector<std::string_view> out;
  for (const json::Value entry : signature["output_specs"].elements())
    for (const json::Member m : entry.members()) {
      if (m.name == "user_output") {
        if (auto name = arg_name(m.value)) out.push_back(*name);
        continue;
      }
      if (m.name == "token") continue;
      std::string what = cat("of kind '", m.name, "', which is not supported");
      if (auto buffer = m.value.find("buffer_name"))
        what = cat("the new value of the buffer '", buffer->string(), "'");
      if (auto input = m.value.find("user_input_name"))
        what = cat("the new value of the input '", input->string(), "'");
      throw UserError("TK0206", cat("the capture's output at ", entry.path(), " is ", what))
          .at(entry.file())
          .help(
              "a captured forward must not change its buffers or inputs: capture it with "
              "use_cache=False");
    }
  return out;
}

}  // namespace tk
