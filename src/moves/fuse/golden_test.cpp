// Golden tests of the moves: every x.tk beside the code. A file holds cases split by "// -----":
//   // run: fuse_rms_norm, fuse_add_rms_norm      the moves, applied at every adaptable site
//   graph @... { ... }
//   // target: a2                                 when it is not the CPU
//   // expect                                     the graph that must come out, or
//   // expect unchanged, because: WORDS           the same graph, and WORDS in the reason, and/or
//   // site: WORDS                                in order: what the last move finds at the start,
//                                                 "MODULE VERDICT REASON NOTES"
// TK_UPDATE=1 rewrites the expected graphs; look at the diff before you commit it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "base/error.h"
#include "moves/fuse/move.h"
#include "ops/interpret.h"

namespace tk {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> split(const std::string& text, const std::string& by) {
  std::vector<std::string> parts;
  std::size_t start = 0;
  for (;;) {
    const std::size_t end = text.find(by, start);
    parts.push_back(text.substr(start, end - start));
    if (end == std::string::npos) return parts;
    start = end + by.size();
  }
}

std::string trimmed(std::string s) {
  const char* blank = " \r\n";
  s.erase(0,
          s.find_first_not_of(blank) == std::string::npos ? s.size() : s.find_first_not_of(blank));
  s.erase(s.find_last_not_of(blank) + 1);
  return s;
}

struct Case {
  std::vector<std::string> moves;
  std::string before, expected, because;
  bool unchanged = false, has_graph = false;
  Target target = Target::cpu;
  std::vector<std::string> sites;
  std::string head;  // everything up to and with "// expect"
};

Case read_case(const std::string& text) {
  Case c;
  std::istringstream lines(text);
  std::string* graph = &c.before;
  for (std::string line; std::getline(lines, line);) {
    const std::string t = trimmed(line);
    if (graph == &c.before || t.rfind("// ", 0) == 0) c.head += line + "\n";
    if (t.rfind("// run:", 0) == 0) {
      for (const std::string& m : split(t.substr(7), ",")) c.moves.push_back(trimmed(m));
    } else if (t.rfind("// expect unchanged, because:", 0) == 0) {
      c.unchanged = true;
      c.because = trimmed(t.substr(29));
    } else if (t.rfind("// target:", 0) == 0) {
      EXPECT_TRUE(parse_target(trimmed(t.substr(10)), &c.target)) << t;
    } else if (t == "// expect") {
      c.has_graph = true;
      graph = &c.expected;
    } else if (t.rfind("// site:", 0) == 0) {
      c.sites.push_back(trimmed(t.substr(8)));
    } else if (t.rfind("//", 0) != 0) {
      *graph += line + "\n";
    }
  }
  return c;
}

std::string reason_of(const Move& move, const Graph& graph, Target target) {
  for (const Site& s : move.find(graph, target))
    if (!s.verdict.ok()) return s.verdict.reason;
  std::string all;
  for (const Rewrite& r : move.rewrites) all += why_not(r, graph) + "\n";
  return all;
}

std::string line_of(const Site& s) {
  std::string line = cat(s.module, " ", name_of(s.verdict.kind));
  if (!s.verdict.constraint.empty()) line += cat(" [", s.verdict.constraint, "]");
  if (!s.verdict.reason.empty()) line += cat(" ", s.verdict.reason);
  for (const std::string& n : s.verdict.notes) line += cat("; ", n);
  return trimmed(line);
}

// Both graphs on the reference, where all inputs are floats: moves keep what is computed.
std::vector<Tensor> run(const Graph& graph, std::map<std::string, Tensor>* values) {
  const SymEnv env{{"T", 5}, {"B", 2}, {"S", 3}};
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  auto value = [&](const Value& v) {
    auto it = values->find(v.name);
    if (it != values->end()) return it->second;
    Tensor t = Tensor::empty(v.type.dtype, concrete(v.type.shape, env));
    for (std::int64_t i = 0; i < t.numel(); ++i)
      set_element(t, i, static_cast<double>(normal(random)));
    return values->emplace(v.name, t).first->second;
  };
  std::vector<Tensor> inputs;
  Weights weights;
  for (const auto& v : graph.inputs()) inputs.push_back(value(*v));
  for (const auto& v : graph.weights()) weights[v->name] = value(*v);
  return interpret(graph, inputs, weights);
}

void expect_same_results(const Graph& before, const Graph& after) {
  if (!before.states().empty() || before.inputs().size() != after.inputs().size()) return;
  for (const auto& v : before.inputs())
    if (!is_float(v->type.dtype)) return;
  std::map<std::string, Tensor> values;
  const std::vector<Tensor> was = run(before, &values);
  const std::vector<Tensor> is = run(after, &values);
  ASSERT_EQ(was.size(), is.size());
  for (std::size_t k = 0; k < was.size(); ++k) {
    ASSERT_EQ(was[k].shape, is[k].shape);
    double size = 1e-30;
    for (std::int64_t i = 0; i < was[k].numel(); ++i)
      size = std::max(size, std::fabs(element(was[k], i)));
    const double tolerance = was[k].dtype == DType::bf16 ? 2e-2 : 1e-5;
    for (std::int64_t i = 0; i < was[k].numel(); ++i)
      ASSERT_NEAR(element(is[k], i), element(was[k], i), tolerance * size) << k << " " << i;
  }
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, Moves) {
  const fs::path path = fs::path(TK_SOURCE_DIR) / "src/moves/fuse" / GetParam();
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  const bool update = std::getenv("TK_UPDATE") != nullptr;
  std::string updated;
  int number = 0;
  for (const std::string& part : split(text.str(), "// -----\n")) {
    SCOPED_TRACE(cat(GetParam(), " case ", ++number));
    const Case c = read_case(part);
    Graph graph = parse_graph(c.before, GetParam());
    verify(graph);
    const std::string before = print(graph);
    ASSERT_EQ(print(parse_graph(before)), before);
    const Move* last = nullptr;
    for (const std::string& name : c.moves) {
      last = find_move(name);
      ASSERT_NE(last, nullptr) << name;
      if (name == c.moves.back()) {
        const std::string now = print(graph);
        const std::vector<Site> sites = last->find(graph, c.target);
        ASSERT_EQ(print(graph), now) << "find has changed the graph";
        if (!c.sites.empty()) {
          EXPECT_EQ(sites.size(), c.sites.size());
        }
        for (std::size_t i = 0; i < c.sites.size() && i < sites.size(); ++i)
          EXPECT_NE(line_of(sites[i]).find(c.sites[i]), std::string::npos)
              << "found: " << line_of(sites[i]) << "\nexpected: " << c.sites[i];
      }
      apply_move(*last, graph, c.target);
      verify(graph, name);
    }
    graph.erase_dead();
    verify(graph, "erase_dead");
    if (!last->changes_results) expect_same_results(parse_graph(before), graph);
    updated += (number > 1 ? "// -----\n" : "") + c.head;
    if (c.unchanged) {
      EXPECT_EQ(print(graph), before);
      EXPECT_NE(reason_of(*last, graph, c.target).find(c.because), std::string::npos)
          << reason_of(*last, graph, c.target);
    }
    if (c.has_graph) {
      if (update) {
        updated += print(graph);
      } else {
        EXPECT_EQ(print(graph), print(parse_graph(c.expected, GetParam() + " (expected)")));
      }
    }
  }
  if (update) std::ofstream(path) << updated;
}

std::vector<std::string> files() {
  std::vector<std::string> names;
  for (const auto& e : fs::directory_iterator(fs::path(TK_SOURCE_DIR) / "src/moves/fuse"))
    if (e.path().extension() == ".tk") names.push_back(e.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Files, Golden, testing::ValuesIn(files()), [](const auto& info) {
  return info.param.substr(0, info.param.find('.'));
});

}  // namespace
}  // namespace tk
