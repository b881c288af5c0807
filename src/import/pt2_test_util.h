// The model.json of a small capture, for tests: x, an f32 [s0, s1, 4] input, and the weight w [4,
// 4] unless changed; nodes and values are added as JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "import/pt2.h"

namespace tk {

inline std::string symbol(std::string_view name) {
  return cat(R"x({"as_expr": {"expr_str": "Symbol(')x", name,
             R"x(', positive=True, integer=True)", "hint": {"as_int": 2}}})x");
}
inline std::string expr(std::string_view srepr) {
  return cat(R"({"as_expr": {"expr_str": ")", srepr, R"("}})");
}
inline std::string size(std::int64_t n) { return cat(R"({"as_int": )", n, "}"); }
inline std::string join(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& p : parts) out += (out.empty() ? "" : ", ") + p;
  return out;
}
inline std::string named(std::string_view name) { return cat(R"({"name": ")", name, "\"}"); }
inline std::string tensor(std::string_view name) {
  return cat(R"({"as_tensor": )", named(name), "}");
}
inline std::string arg(std::string_view name, std::string_view value) {
  return cat(R"({"name": ")", name, R"(", "arg": )", value, R"(, "kind": 1})");
}

struct CaptureText {
  std::string version = R"({"major": 8, "minor": 20})";
  std::string range_constraints = R"({"s0": {"min_val": 1, "max_val": 16}, "s1": {"min_val": 1}})";
  std::string guards = "[]";
  std::vector<std::string> inputs, nodes, values, ints, floats, input_specs, output_specs;

  static constexpr int f32 = 7;
  static constexpr int i64 = 5;
  CaptureText() {
    weight("w", "layer.weight", {size(4), size(4)});
    input("x", {symbol("s0"), symbol("s1"), size(4)});
  }

  void value(std::string_view name, const std::vector<std::string>& sizes, int dtype = f32) {
    values.push_back(cat('"', name, R"(": {"dtype": )", dtype, R"(, "sizes": [)", join(sizes),
                         R"(], "requires_grad": false, "layout": 7})"));
  }
  void input(std::string_view name, const std::vector<std::string>& sizes, int dtype = f32) {
    value(name, sizes, dtype);
    inputs.push_back(tensor(name));
    input_specs.push_back(cat(R"({"user_input": {"arg": )", tensor(name), "}}"));
  }
  void weight(std::string_view name, std::string_view full, const std::vector<std::string>& sizes,
              int dtype = f32) {
    value(name, sizes, dtype);
    inputs.push_back(tensor(name));
    input_specs.push_back(
        cat(R"({"parameter": {"arg": )", named(name), R"(, "parameter_name": ")", full, "\"}}"));
  }
  void node(std::string_view target, const std::vector<std::string>& args,
            const std::vector<std::string>& outputs,
            std::string_view metadata =
                R"({"stack_trace": "File \"a/model.py\", line 7, in forward\n    y = f(x)\n)"
                R"(  File \"site-packages/torch/nn/modules/linear.py\", line 9, in forward\n", )"
                R"("nn_module_stack": "L__self__,,m.Top;L__self__layer,layer,m.sub.Layer"})") {
    nodes.push_back(cat(R"({"target": ")", target, R"(", "inputs": [)", join(args),
                        R"(], "outputs": [)", join(outputs), R"(], "metadata": )", metadata, "}"));
  }
  // An operator of one f32 result with the shape of x.
  void unary(std::string_view target, std::string_view from, std::string_view to) {
    value(to, {symbol("s0"), symbol("s1"), size(4)});
    node(target, {arg("self", tensor(from))}, {tensor(to)});
  }
  void number(std::string_view name, std::string_view srepr) {
    ints.push_back(cat('"', name, "\": ", expr(srepr)));
  }
  void output(std::string_view name) {
    output_specs.push_back(cat(R"({"user_output": {"arg": )", tensor(name), "}}"));
  }

  std::string text() const {
    return cat(R"({"schema_version": )", version, R"(, "range_constraints": )", range_constraints,
               R"(, "guards_code": )", guards, R"(, "graph_module": {"graph": {"inputs": [)",
               join(inputs), R"(], "outputs": [], "nodes": [)", join(nodes),
               R"(], "tensor_values": {)", join(values), R"(}, "sym_int_values": {)", join(ints),
               R"(}, "sym_float_values": {)", join(floats),
               R"(}, "sym_bool_values": {}}, "signature": {"input_specs": [)", join(input_specs),
               R"(], "output_specs": [)", join(output_specs), "]}}}");
  }
  Pt2Graph import(const ImportOptions& options = {}) const {
    const json::Document document = json::parse(text(), "m.pt2");
    return import_pt2(document.root(), options);
  }
  std::string print(const ImportOptions& options = {}) const {
    return tk::print(import(options).graph);
  }
  std::string error(const ImportOptions& options = {}) const {
    try {
      import(options);
    } catch (const UserError& e) {
      return e.what();
    }
    return "no error";
  }
};

}  // namespace tk
