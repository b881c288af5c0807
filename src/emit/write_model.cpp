// From two graphs to the files of a directory.
#include <algorithm>
#include <cctype>
#include <map>

#include "base/error.h"
#include "emit/classes.h"
#include "emit/emit.h"
#include "emit/files.h"
#include "emit/shape_up.h"
#include "import/json.h"
#include "import/pt2_archive.h"

namespace tk::emit {
namespace {

Graph shaped(const Graph& graph) {
  Graph out = rows_before_head(graph);
  merge_reshapes(&out);
  split_slices(&out);
  unify_norms(&out);
  out.erase_dead();
  out.erase_unused_weights();
  return out;
}

DType usual_dtype(const Graph& graph) {
  std::map<DType, std::int64_t> sizes;
  for (const auto& w : graph.weights())
    if (is_float(w->type.dtype))
      if (const auto n = w->type.numel().constant()) sizes[w->type.dtype] += *n;
  DType best = DType::f32;
  for (const auto& [dtype, n] : sizes)
    if (n > sizes[best]) best = dtype;
  return best;
}

}  // namespace

Emitted write_model(const Model& model, const Options& options) {
  const Graph prefill = shaped(model.prefill);
  const Graph decode = shaped(model.decode);
  Source source;
  source.model = &model;
  source.dtype = usual_dtype(prefill);
  source.types = model.types;
  source.numbers = config_numbers(model.config.text);
  source.reals = config_reals(model.config.text);
  for (const Graph* g : {&model.prefill, &model.decode, &prefill}) collect_types(*g, &source.types);
  Emitted out;
  std::set<std::string> flat;
  for (;;) {
    Phase first = phase_of(prefill, source.types, flat);
    Phase second = phase_of(decode, source.types, flat);
    first.set_attrs.insert(second.set_attrs.begin(), second.set_attrs.end());
    second.set_attrs = first.set_attrs;
    source.prefill = &first;
    source.decode = &second;
    std::string conflict;
    const Classes classes = write_classes(source, &conflict);
    if (!conflict.empty()) {
      TK_CHECK(flat.insert(conflict).second, "module ", conflict, " can't be written");
      out.notes.push_back(cat(
          "'", conflict, "' is written into its parent: prefill and decode pass it other values"));
      continue;
    }
    out.notes.insert(out.notes.end(), classes.notes.begin(), classes.notes.end());
    out.files = files_of(source, classes, options);
    return out;
  }
}

Model of_capture(const CapturedModel& captured, std::string_view name, Graph prefill, Graph decode,
                 std::int64_t block_size) {
  Model m;
  m.name = python_name(name);
  m.prefill = std::move(prefill);
  m.decode = std::move(decode);
  m.weights = captured.weights;
  m.config = captured.config;
  m.block_size = block_size;
  m.max_positions = captured.config.max_positions;
  collect_types(captured.graph, &m.types);
  const Pt2Archive archive = Pt2Archive::open(captured.graph_path);
  const json::Document document = archive.graph();
  const json::Value specs = document.root()["graph_module"]["signature"]["input_specs"];
  for (const json::Value spec : specs.elements()) {
    if (const auto buffer = spec.find("buffer"); buffer && !(*buffer)["persistent"].boolean())
      m.constants.emplace((*buffer)["buffer_name"].string());
    if (const auto constant = spec.find("tensor_constant"))
      m.constants.emplace((*constant)["tensor_constant_name"].string());
  }
  return m;
}

std::string python_name(std::string_view name) {
  std::string out;
  for (const char c : name) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isalnum(u) != 0 && u < 128)
      out += static_cast<char>(std::tolower(u));
    else if (!out.empty() && out.back() != '_')
      out += '_';
  }
  while (out.ends_with('_')) out.pop_back();
  if (out.empty())
    throw UserError("TK1201", cat("'", name, "' has no letters or digits: it can't name files"))
        .help("give a name with --name");
  if (std::isdigit(static_cast<unsigned char>(out[0])) != 0) out = "m_" + out;
  return out;
}

}  // namespace tk::emit
