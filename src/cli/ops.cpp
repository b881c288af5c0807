// tokamak ops: what is known of torch_npu's operators.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/find_package.h"
#include "ops/npu/catalogue.h"
#include "ops/npu/stated_call.h"

namespace tk::cli {
namespace {

using json = nlohmann::ordered_json;

struct Flags {
  std::string docs, name, prefix, target;
  std::vector<std::string> words;
  std::size_t max = 10;
  StatedCall call;
  bool as_json = false;
};

// The document of an installed torch_npu, which is not imported; empty where there is none. Throws
// TK0320 for a package without it.
std::string installed_document() {
  const char* named = std::getenv("TOKAMAK_PYTHON");
  const std::filesystem::path folder =
      find_package("torch_npu", named != nullptr && *named != '\0' ? named : "python3");
  if (folder.empty()) return "";
  const std::filesystem::path file = folder / "_op_plugin_docs.py";
  if (!std::filesystem::exists(file))
    throw UserError("TK0320",
                    cat("the torch_npu in ", folder.string(), " has no ", file.filename().string()))
        .help("give the document of another package with --docs, or uninstall this one");
  return file.string();
}

OpCatalogue catalogue_of(const Flags& f) {
  return op_catalogue(f.docs.empty() ? installed_document() : f.docs);
}

// Said to stderr, with exit code 1: the question is well put, and the answer is no.
int unknown_operator(const OpCatalogue& catalogue, const std::string& name) {
  UserError e("TK0321", cat("unknown operator '", name, "'"));
  std::string list;
  for (const std::string& n : nearest_entries(catalogue, name))
    list += (list.empty() ? "" : ", ") + n;
  if (list.empty()) {
    std::fprintf(stderr, "%s\n",
                 std::move(e).help("`tokamak ops search WORD` looks through all").what());
  } else {
    std::fprintf(stderr, "%s\n", std::move(e).help(cat("its nearest relatives are ", list)).what());
  }
  return 1;
}

// ---- list and search

int list(const Flags& f) {
  const OpCatalogue catalogue = catalogue_of(f);
  json names = json::array();
  for (const OpEntry& e : catalogue.entries)
    if (e.name.starts_with(f.prefix)) names.push_back(e.name);
  if (f.as_json) {
    fmt::print("{}\n", names.dump(1));
  } else {
    for (const auto& name : names) fmt::print("{}\n", name.get<std::string>());
  }
  std::fflush(stdout);
  fmt::print(stderr, "{} operators\n", names.size());
  return names.empty() ? 1 : 0;
}

int search(const Flags& f) {
  const OpCatalogue catalogue = catalogue_of(f);
  std::string words;
  for (const std::string& w : f.words) words += (words.empty() ? "" : " ") + w;
  if (words.find_first_not_of(" _") == std::string::npos)
    throw UserError("TK1600", "there is no word to search for")
        .help("`tokamak ops list` has all names");
  const std::vector<const OpEntry*> found = search_entries(catalogue, words);
  const std::size_t shown = std::min(found.size(), f.max);
  json rows = json::array();
  for (std::size_t i = 0; i < shown; ++i)
    rows.push_back({{"name", found[i]->name},
                    {"documented", catalogue.is_documented(*found[i])},
                    {"line", headline(*found[i])}});
  if (f.as_json) {
    fmt::print("{}\n",
               json{{"words", words}, {"found", found.size()}, {"operators", rows}}.dump(1));
  } else {
    for (const auto& r : rows)
      fmt::print("{}{}\n    {}\n", r["name"].get<std::string>(),
                 r["documented"].get<bool>() ? "" : "  (undocumented)",
                 r["line"].get<std::string>());
  }
  std::fflush(stdout);
  if (found.empty()) fmt::print(stderr, "no operator has '{}' in its name or text\n", words);
  if (shown < found.size()) fmt::print(stderr, "{} of {}; --max shows more\n", shown, found.size());
  return found.empty() ? 1 : 0;
}

// ---- show

json facts_of(const OpDef& op) {
  json j{{"name", op.name.substr(4)}, {"doc", op.doc}, {"schema", op.schema}};
  const NpuFacts* facts = op.npu;
  if (facts == nullptr) return j;
  j["group"] = facts->group;
  j["library"] = facts->signature;
  j["source"] = facts->source;
  j["devices"] = {{"a2", facts->a2}, {"a3", facts->a3}};
  j["graph_mode"] = facts->graph_mode;
  for (const Symbol& s : facts->symbols)
    j["symbols"].push_back({{"name", s.name}, {"expr", s.expr}, {"what", s.what}});
  for (const Limit& l : facts->limits)
    j["checks"].push_back({{"id", l.id}, {"expr", l.expr}, {"why", l.why}, {"soc", l.soc}});
  for (const std::string_view note : facts->notes) j["notes"].push_back(note);
  return j;
}

void row(std::string_view title, std::string_view text) {
  if (!text.empty()) fmt::print("{:<10} {}\n", title, text);
}

void print_facts(const OpDef& op) {
  row("does", op.doc);
  row("here", cat(op.name, op.schema));
  const NpuFacts* facts = op.npu;
  if (facts == nullptr) return row("facts", "none");
  std::string_view title = "library";
  for (std::string_view rest = facts->signature; !rest.empty(); title = "") {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    row(title, rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  row("group", facts->group);
  row("devices", cat("a2 ", facts->a2, ", a3 ", facts->a3));
  row("graph", facts->graph_mode);
  row("source", facts->source);
  title = "symbols";
  for (const Symbol& s : facts->symbols) {
    row(title, cat(s.name, " = ", s.expr, s.what.empty() ? "" : "  ", s.what));
    title = "";
  }
  title = "checks";
  for (const Limit& l : facts->limits) {
    row(title, cat(l.id, l.soc.empty() ? "" : " on ", l.soc));
    fmt::print("{:<12} {}{}{}\n", "", l.expr, l.why.empty() ? "" : "  # ", l.why);
    title = "";
  }
  title = "notes";
  for (const std::string_view note : facts->notes) {
    row(title, note);
    title = "";
  }
}

int show(const Flags& f) {
  const OpCatalogue catalogue = catalogue_of(f);
  const OpEntry* e = find_entry(catalogue, f.name);
  if (e == nullptr) return unknown_operator(catalogue, f.name);
  const std::string origin = e->text.empty() ? "" : catalogue.document;
  if (f.as_json) {
    json j = e->op != nullptr ? facts_of(*e->op) : json{{"name", e->name}};
    j["defined"] = e->op != nullptr;
    j["documented"] = catalogue.is_documented(*e);
    if (!origin.empty()) j["document"] = {{"file", origin}, {"text", e->text}};
    fmt::print("{}\n", j.dump(1));
    return 0;
  }
  fmt::print("{}{}\n", e->name, catalogue.is_documented(*e) ? "" : "  (undocumented)");
  if (e->op != nullptr) {
    print_facts(*e->op);
  } else {
    row("here", "not defined: it cannot be fused, checked or run");
  }
  if (!origin.empty()) fmt::print("{:<10} {}\n{}\n", "document", origin, e->text);
  return 0;
}

// ---- check

const char* name_of(LimitState s) {
  return s == LimitState::holds ? "holds" : s == LimitState::violated ? "fails" : "unknown";
}

const char* name_of(Legal l) {
  return l == Legal::yes ? "legal" : l == Legal::no ? "refused" : "pending";
}

std::string words_of(const LimitChange& c) {
  std::string s = fmt::format("{} {} -> {}", c.name, c.from, c.to);
  const double from = std::strtod(c.from.c_str(), nullptr);
  if (c.distance != 0 && from > 0)
    s += fmt::format(" ({:+.3g} %)", 100 * static_cast<double>(c.distance) / from);
  return s;
}

json json_of(const CheckedCall& found, const OpDef& op, const std::string& target) {
  json j{{"operator", op.name.substr(4)},   {"target", target},
         {"verdict", name_of(found.legal)}, {"why", found.why},
         {"facts_source", op.npu->source},  {"refused", found.refused},
         {"not_stated", found.unknown},     {"checks", json::array()}};
  for (const CheckedCall::Row& r : found.rows) {
    json c{{"id", r.result.limit->id},
           {"state", name_of(r.result.state)},
           {"expr", r.result.limit->expr},
           {"why", r.result.limit->why},
           {"values", r.result.values}};
    if (r.change)
      c["change"] = {{"name", r.change->name},
                     {"from", r.change->from},
                     {"to", r.change->to},
                     {"distance", r.change->distance}};
    j["checks"].push_back(std::move(c));
  }
  return j;
}

int check(const Flags& f) {
  const OpCatalogue catalogue = op_catalogue();
  const OpEntry* e = find_entry(catalogue, f.name);
  if (e == nullptr || e->op == nullptr || e->op->npu == nullptr)
    return unknown_operator(catalogue, f.name);
  const OpDef& op = *e->op;
  const CheckedCall found = check_stated(op, f.call, f.target);
  if (f.as_json) {
    fmt::print("{}\n", json_of(found, op, f.target).dump(1));
    return found.legal == Legal::yes ? 0 : 1;
  }
  fmt::print("{}{}: {}{}{}\n", e->name, f.target.empty() ? "" : " on " + f.target,
             name_of(found.legal), found.why.empty() ? "" : ", ", found.why);
  fmt::print("facts from {}\n", op.npu->source);
  for (const CheckedCall::Row& r : found.rows) {
    fmt::print("  {:<8} {:<36} {}\n", name_of(r.result.state), r.result.limit->id,
               r.result.limit->expr);
    if (r.result.state != LimitState::holds && !r.result.values.empty())
      fmt::print("  {:<8} {:<36} {}\n", "", "", r.result.values);
    if (r.change) fmt::print("  {:<8} {:<36} legal with {}\n", "", "", words_of(*r.change));
  }
  if (!found.refused.empty()) fmt::print("  {:<8} {}\n", "fails", found.refused);
  if (!found.unknown.empty()) {
    fmt::print("  not stated:");
    for (const std::string& name : found.unknown) fmt::print(" {}", name);
    fmt::print("\n");
  }
  return found.legal == Legal::yes ? 0 : 1;
}

}  // namespace

void add_ops(CLI::App& app, int* exit_code) {
  auto f = std::make_shared<Flags>();
  CLI::App* ops = app.add_subcommand("ops", "What is known of torch_npu's operators");
  ops->require_subcommand(1);
  const auto command = [&](const char* name, const char* what, int (*run)(const Flags&)) {
    CLI::App* c = ops->add_subcommand(name, what);
    c->add_flag("--json", f->as_json, "The same as JSON");
    c->callback([f, exit_code, run] { *exit_code = run(*f); });
    return c;
  };
  const auto docs = [&](CLI::App* c) {
    c->add_option("--docs", f->docs,
                  "A document to read (_op_plugin_docs.py), in place of an installed torch_npu's");
    return c;
  };
  CLI::App* c = docs(command("list", "The names; how many to stderr", list));
  c->add_option("--prefix", f->prefix, "Only those that start so");
  c->footer("Example: tokamak ops list --prefix npu_moe");
  c = docs(command("search", "Operators with all words in name or text", search));
  c->add_option("words", f->words, "Words")->required();
  c->add_option("--max", f->max, "At most so many")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  c->footer("Example: tokamak ops search rms norm");
  c = docs(command("show", "All facts of one: schema, devices, checks, notes, document", show));
  c->add_option("name", f->name, "npu_rms_norm")->required();
  c->footer("Example: tokamak ops show npu_rms_norm");
  c = command("check", "Is a call legal on a device? Every check, with values", check);
  c->add_option("name", f->name, "npu_rms_norm")->required();
  c->add_option("--shape", f->call.shapes, "x=[4, 7168] or x=[T, 7168]; once for each tensor")
      ->allow_extra_args(false);
  c->add_option("--dtype", f->call.dtypes, "x=bf16, or bf16 for all tensors")
      ->allow_extra_args(false);
  c->add_option("--attr", f->call.attrs, "k=8, layout=BSND")->allow_extra_args(false);
  c->add_option("--sym", f->call.symbols, "A symbol of the checks: He=5120; graph=true")
      ->allow_extra_args(false);
  c->add_option("--target", f->target, "The device")->check(CLI::IsMember({"a2", "a3"}));
  c->footer(
      "Example: tokamak ops check npu_rms_norm --shape x=[4,7168] --dtype x=bf16 --target a2\n"
      "Exit codes: 0 legal as far as is known, 1 refused or pending, 2 bad usage");
}

}  // namespace tk::cli
