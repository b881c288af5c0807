// Every rewrite proves itself (.check): its pattern is built from the types given, with every
// choice in it, and both sides run on the reference. It must fire, not fire again, verify, and be
// as right as the original: measured from the same computation in f32, its error may be half as
// large again as the original's own rounding, plus one rounding of the dtype.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "base/error.h"
#include "moves/fuse/move.h"
#include "ops/interpret.h"

namespace tk {
namespace {

using Types = std::vector<std::pair<std::string, Type>>;

const Type& type_of(const Types& types, const std::string& name) {
  for (const auto& [n, t] : types)
    if (n == name) return t;
  throw InternalError(__FILE__, __LINE__, cat("the check has no type for '", name, "'"));
}

Graph instance(const Rewrite& r, const Types& types, int choice, bool widened) {
  Graph graph;
  // Inputs first, in the order of the check: casts follow the first one.
  Types all = types;
  for (auto& [name, type] : all)
    if (widened && is_float(type.dtype)) type.dtype = DType::f32;
  Builder b{graph, nullptr, nullptr};
  std::map<std::string, Value*> leaves;
  const auto leaf = [&](const PatNode& p) {
    Value*& v = leaves[p.name];
    if (v == nullptr)
      v = p.weight ? graph.add_weight(p.name, type_of(all, p.name))
                   : graph.add_input(p.name, type_of(all, p.name));
    return v;
  };
  for (Value* root : instantiate(b, r.roots, leaf, choice).roots) graph.add_output(root);
  return graph;
}

Dims sizes(const SymDims& shape) {
  SymEnv env{{"T", 5}, {"S", 3}, {"B", 2}};
  return concrete(shape, env);
}

// Values that every float dtype holds exactly, so that all runs see the same numbers. Integers
// count from 0, which is right for indices, places and tables; lengths are named so.
Tensor values_of(const std::string& name, const Type& type, std::mt19937& random) {
  Tensor t = Tensor::empty(type.dtype, sizes(type.shape));
  if (type.dtype == DType::c64) {
    for (std::int64_t i = 0; i < 2 * t.numel(); ++i)
      t.as<float>()[i] = std::cos(static_cast<float>(i));
    return t;
  }
  if (!is_float(type.dtype)) {
    for (std::int64_t i = 0; i < t.numel(); ++i) set_element(t, i, static_cast<double>(i));
    // Two requests: 3 of 7 tokens are new in the first, 2 of 5 in the second.
    if (t.numel() == 2) {
      if (name == "q_lens") set_element(t, 0, 3), set_element(t, 1, 5);
      if (name == "kv_lens") set_element(t, 0, 7), set_element(t, 1, 5);
    }
    // One request, a prompt of 5 tokens; and requests with one new token each.
    if (t.numel() == 1 && (name == "q_lens" || name == "kv_lens")) set_element(t, 0, 5);
    if (name == "q_ends")
      for (std::int64_t i = 0; i < t.numel(); ++i) set_element(t, i, static_cast<double>(i + 1));
    return t;
  }
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < t.numel(); ++i)
    set_element(t, i, static_cast<double>(to_float(to_bf16(normal(random)))));
  return t;
}

struct Numbers {
  std::map<std::string, Tensor> values;
};

std::vector<Tensor> run(const Graph& graph, const Numbers& numbers) {
  std::vector<Tensor> inputs;
  Weights weights;
  for (const auto& v : graph.inputs())
    inputs.push_back(to_dtype(numbers.values.at(v->name), v->type.dtype));
  for (const auto& v : graph.weights())
    weights[v->name] = to_dtype(numbers.values.at(v->name), v->type.dtype);
  return interpret(graph, inputs, weights);
}

// The largest difference, relative to the largest value.
double error(const TensorView& a, const TensorView& oracle) {
  double worst = 0;
  double size = 1e-30;
  for (std::int64_t i = 0; i < oracle.numel(); ++i) {
    worst = std::max(worst, std::fabs(element(a, i) - element(oracle, i)));
    size = std::max(size, std::fabs(element(oracle, i)));
  }
  return worst / size;
}

double rounding(DType dtype) {
  if (dtype == DType::bf16) return 1.0 / 256;
  if (dtype == DType::f16) return 1.0 / 2048;
  return is_float(dtype) ? 1e-6 : 0;
}

void prove(const Rewrite& r, const Types& types, int choice) {
  const Graph before = instance(r, types, choice, false);
  verify(before);
  Graph after = before.clone();
  ASSERT_EQ(apply_everywhere(r, after), 1U) << why_not(r, before) << "\n" << print(before);
  verify(after, r.name);
  after.erase_dead();
  verify(after, r.name);
  ASSERT_EQ(apply_everywhere(r, after), 0U);
  const Graph oracle = instance(r, types, choice, true);

  std::mt19937 random(1234);
  Numbers numbers;
  for (const auto& [name, type] : types) numbers.values[name] = values_of(name, type, random);
  const std::vector<Tensor> is = run(after, numbers);
  const std::vector<Tensor> was = run(before, numbers);
  const std::vector<Tensor> ideal = run(oracle, numbers);
  for (std::size_t i = 0; i < is.size(); ++i) {
    const double allowed = 1.5 * error(was[i], ideal[i]) + rounding(is[i].dtype);
    EXPECT_LE(error(is[i], ideal[i]), allowed)
        << "result " << i << ", the original's error is " << error(was[i], ideal[i]) << "\n"
        << print(before) << print(after);
  }
}

TEST(Checks, EveryRewriteProvesItself) {
  for (const Move& move : all_moves()) {
    for (const Rewrite& r : move.rewrites) {
      SCOPED_TRACE(cat(move.name, ": ", r.doc));
      if (r.reports_only) continue;
      EXPECT_FALSE(r.checks.empty()) << "a rewrite without .check";
      for (const Types& types : r.checks)
        for (int choice = 0; choice < n_choices(r.roots); ++choice) {
          SCOPED_TRACE(cat("choice ", choice, ", ", types[0].second.str()));
          prove(r, types, choice);
        }
    }
  }
}

// FU-07: every check of the operator table is a limit of its operator; ids name the operator.
TEST(Checks, TheOperatorTablesChecksAreLimits) {
  std::set<std::string, std::less<>> ids;
  for (const OpDef* op : all_ops()) {
    if (op->npu == nullptr) continue;
    std::string name(op->name.substr(op->name.find('.') + 1));
    if (name.rfind("npu_", 0) == 0) name = name.substr(4);
    for (const Limit& limit : op->npu->limits) {
      EXPECT_EQ(limit.id.substr(0, limit.id.find('.')), name) << limit.id;
      EXPECT_TRUE(ids.insert(std::string(limit.id)).second) << limit.id << " twice";
    }
  }
  const char* shared = std::getenv("TOKAMAK_SHARED");
  const std::filesystem::path folder =
      shared != nullptr ? shared : std::filesystem::path(TK_SOURCE_DIR) / "../shared";
  std::ostringstream table;
  table << std::ifstream(folder / "data/torch_npu_ops.json").rdbuf();
  const std::string text = table.str();
  if (text.empty()) GTEST_SKIP() << "no operator table in " << folder;
  // Held elsewhere: a list is one tensor here, ids are looked at when it runs, and row32 is a
  // condition of the graph engine's own fusion.
  const std::set<std::string> elsewhere = {
      "grouped_matmul.lists", "moe_distribute_dispatch_v2.distinct",
      "moe_distribute_combine_v2.distinct", "add_rms_norm_quant.row32"};
  const std::string_view key = "\"id\": \"";
  for (std::size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
    const std::size_t start = at + key.size();
    const std::string id = text.substr(start, text.find('"', start) - start);
    EXPECT_TRUE(ids.count(id) + elsewhere.count(id) != 0) << id << " is no limit of an operator";
  }
}

TEST(Checks, MovesHaveNamesAndTheirOrderIsFixed) {
  std::set<std::string> names;
  for (const Move& move : all_moves()) {
    EXPECT_TRUE(names.insert(move.name).second) << move.name;
    EXPECT_FALSE(move.doc.empty()) << move.name;
    EXPECT_EQ(find_move(move.name), &move);
  }
}

}  // namespace
}  // namespace tk
