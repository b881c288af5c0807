// tokamak emit MODEL -o DIR: the fused graphs as torch_npu code in a directory that runs.
#include "emit/emit.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/cli.h"
#include "moves/canonical/canonical.h"
#include "trial/capturability.h"
#include "trial/deployment.h"
#include "trial/optimize.h"

namespace tk::cli {
namespace {

struct Flags {
  std::string model, out, name, target = "a2", model_path, deployment = "standalone",
                                exe_mode = "eager";
  std::vector<std::string> prompts;
  std::int64_t block_size = 128;
  bool force = false, take_pending = false, json = false;
};

// A folder that optimize made is written as it stands: its graphs were tried and kept.
emit::Model of_deployment(const std::string& path, const std::string& name) {
  Deployment d = load_deployment(path);
  emit::Model m;
  m.name = emit::python_name(name.empty() ? d.name : name);
  m.prefill = std::move(d.engine.prefill);
  m.decode = std::move(d.engine.decode);
  // The runner that is written asks for the logits of each request's last token.
  for (Graph* g : {&m.prefill, &m.decode})
    if (g->find_input("logit_rows") == nullptr) apply_move(*find_move("move_logit_rows"), *g);
  for (Graph* g : {&m.prefill, &m.decode}) canonicalize(*g);
  m.weights = std::move(d.engine.weights);
  m.config = std::move(d.config);
  m.block_size = d.engine.block_size;
  m.max_positions = d.engine.max_positions;
  return m;
}

emit::Model of_captured(const Flags& f, Target target) {
  const CapturedModel model = load_model(f.model);
  OptimizeOptions o;
  o.target = target;
  o.block_size = f.block_size;
  o.take_pending = f.take_pending;
  Graph decode = std::move(prepare(model, o.block_size).cached.graph);
  Graph prefill = decode.clone();
  apply_all_moves(&prefill, &decode, o);
  // The moves leave views of views, and the same table made in each layer.
  for (Graph* g : {&prefill, &decode}) canonicalize(*g);
  return emit::of_capture(model, f.name.empty() ? display_name(model) : f.name, std::move(prefill),
                          std::move(decode), o.block_size);
}

// What was asked for, or eager with a note when the decode step cannot be captured (GM-55).
emit::ExeMode exe_mode_of(const Flags& f, Target target, const Graph& decode,
                          std::vector<std::string>* notes) {
  emit::ExeMode mode = emit::ExeMode::eager;
  if (!emit::parse_exe_mode(f.exe_mode, &mode))
    throw UserError("TK1509", cat("there is no exe mode '", f.exe_mode, "'"))
        .help("the modes are eager, npugraph_ex and ge_graph");
  if (mode == emit::ExeMode::eager) return mode;
  if (target == Target::cpu)
    throw UserError("TK1509", cat("the target cpu has no exe mode '", f.exe_mode, "'"))
        .help("graph modes are of a2 and a3");
  const auto backend =
      mode == emit::ExeMode::ge_graph ? CaptureBackend::ge_graph : CaptureBackend::npugraph_ex;
  // Written as a function over the lists of lengths, attention has slices that follow them.
  for (const Node* n : nodes(decode))
    if (n->is("tk.paged_attention") || n->is("tk.mla_paged_attention")) {
      notes->push_back(
          cat("decode stays eager, GM-30: no fused attention of ", f.target, " takes ",
              n->loc == nullptr ? "this model" : n->loc->module,
              ", and without one each length would be a graph of its own (inspect --target says "
              "which constraint decides)"));
      return emit::ExeMode::eager;
    }
  for (const CaptureFactor& factor : capture_factors(decode, backend))
    if (factor.blocks) {
      notes->push_back(cat("decode stays eager, ", factor.rule, ": ", factor.found, " at ",
                           factor.place.empty() ? factor.module : factor.place));
      mode = emit::ExeMode::eager;
    }
  return mode;
}

int run(const Flags& f) {
  Target target = Target::cpu;
  if (!parse_target(f.target, &target))
    throw UserError("TK0703", cat("there is no target '", f.target, "'"))
        .help("the targets are cpu, a2 and a3");
  if (f.deployment == "framework" && !f.prompts.empty())
    throw UserError("TK1205", "--prompt has no place in the framework's settings")
        .help("leave --prompt out: the framework reads dataset/default_prompt.json");
  if (f.deployment == "framework" && f.exe_mode != "eager")
    throw UserError("TK1205", "--exe-mode has no place in the framework's model")
        .help(
            "leave --exe-mode out: the framework compiles the model itself, by exe_mode of its "
            "YAML");
  const emit::Model model =
      is_deployment(f.model) ? of_deployment(f.model, f.name) : of_captured(f, target);
  emit::Options options;
  options.model_path = f.model_path;
  options.prompts = f.prompts;
  options.framework = f.deployment == "framework";
  options.platform = target == Target::a3 ? "A3" : "A2";
  std::vector<std::string> notes;
  options.exe_mode = exe_mode_of(f, target, model.decode, &notes);
  emit::Emitted emitted = emit::write_model(model, options);
  emitted.notes.insert(emitted.notes.begin(), notes.begin(), notes.end());
  emit::save(f.out, emitted, f.force);
  if (f.json) {
    nlohmann::ordered_json files = nlohmann::json::array();
    for (const emit::File& file : emitted.files) files.push_back(file.path);
    fmt::print(
        "{}\n",
        nlohmann::ordered_json{
            {"folder", f.out}, {"name", model.name}, {"files", files}, {"notes", emitted.notes}}
            .dump(1));
    return 0;
  }
  for (const emit::File& file : emitted.files) fmt::print("{}/{}\n", f.out, file.path);
  for (const std::string& note : emitted.notes) fmt::print("note: {}\n", note);
  return 0;
}

}  // namespace

void add_emit(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<Flags>();
  CLI::App* c = app.add_subcommand(
      "emit", "Write the fused model as torch_npu code (emit profiling --help: the snippet)");
  c->add_option("model", flags->model, "A captured model, or a folder that optimize made")
      ->required();
  c->add_option("-o,--output", flags->out, "Folder for the code")->required();
  c->add_option("--target", flags->target, "Of a captured model: a2, a3, or cpu for plain PyTorch")
      ->capture_default_str();
  c->add_flag("--take-pending", flags->take_pending,
              "Also operators whose document does not name the target");
  c->add_option("--name", flags->name, "Of files and classes; default: the model's");
  c->add_option("--model-path", flags->model_path, "The checkpoint's folder, for the YAML");
  c->add_option("--prompt", flags->prompts, "For the YAML; may be repeated");
  c->add_option("--block-size", flags->block_size, "Tokens in a block of the cache")
      ->check(CLI::Range(16, 512))
      ->capture_default_str();
  c->add_option("--deployment", flags->deployment,
                "standalone, or framework: as a model of cann-recipes-infer")
      ->check(CLI::IsMember({"standalone", "framework"}))
      ->capture_default_str();
  c->add_option("--exe-mode", flags->exe_mode,
                "How decode runs: eager, npugraph_ex or ge_graph; prefill is eager")
      ->capture_default_str();
  c->add_flag("--force", flags->force, "Replace an existing folder");
  c->add_flag("--json", flags->json, "What was written, as JSON");
  c->footer("Example: tokamak emit examples/stories260k -o deploy --target a2");
  c->callback([flags, exit_code] { *exit_code = run(*flags); });
}

}  // namespace tk::cli
