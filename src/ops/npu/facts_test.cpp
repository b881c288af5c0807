// What every operator of torch_npu has, and whether its limits can be evaluated.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "base/error.h"
#include "graph/graph.h"
#include "graph/limits.h"

namespace tk {
namespace {

std::vector<const OpDef*> npu_ops() {
  std::vector<const OpDef*> ops;
  for (const OpDef* op : all_ops())
    if (op->name.starts_with("npu.") && op->npu != nullptr) ops.push_back(op);
  return ops;
}

std::string joined(const std::vector<std::string>& names) {
  std::string s;
  for (const std::string& n : names) s += n + " ";
  return s;
}

// FU-06: the operators of inference in the library's table, by name.
TEST(NpuFacts, EveryOperatorOfTheTableIsThere) {
  std::ifstream file(TK_SOURCE_DIR "/tests/data/ops/torch_npu.txt");
  ASSERT_TRUE(file);
  // docs/left-out.md says why; the first is an allocation, which the emulation has.
  const std::set<std::string> left_out = {"empty_with_swapped_memory",
                                          "npu_gather_selection_kv_cache"};
  std::vector<std::string> missing, bare;
  int n = 0;
  for (std::string name; std::getline(file, name); ++n) {
    const OpDef* op = find_op("npu." + name);
    if (op == nullptr && left_out.count(name) == 0)
      missing.push_back(name);
    else if (op != nullptr && op->npu == nullptr)
      bare.push_back(name);
  }
  EXPECT_EQ(n, 91);
  EXPECT_TRUE(missing.empty()) << joined(missing);
  EXPECT_TRUE(bare.empty()) << "without facts: " << joined(bare);
}

TEST(NpuFacts, FactsAreWhole) {
  for (const OpDef* op : npu_ops()) {
    const NpuFacts& f = *op->npu;
    const std::string name(op->name.substr(4));
    EXPECT_FALSE(f.group.empty()) << name;
    EXPECT_FALSE(f.source.empty()) << name;
    for (const std::string_view has : {f.a2, f.a3})
      EXPECT_TRUE(has.starts_with("yes") || has.starts_with("no") || has.starts_with("unknown"))
          << name << ": " << has;
    EXPECT_TRUE(f.signature.starts_with(name + "(")) << f.signature;
    for (const Schema::Arg& a : op->parsed().tensors)
      EXPECT_NE(f.signature.find(a.name), std::string_view::npos) << name << ": " << a.name;
    for (const Schema::Arg& a : op->parsed().attrs)
      EXPECT_NE(f.signature.find(a.name), std::string_view::npos) << name << ": " << a.name;
  }
}

TEST(NpuFacts, ExpressionsNameWhatTheOperatorHas) {  // FU-41
  for (const OpDef* op : npu_ops()) {
    std::set<std::string_view> ids;
    for (const Limit& l : op->npu->limits) {
      EXPECT_EQ(joined(unknown_names(*op, l.expr)), "") << l.id << ": " << l.expr;
      EXPECT_TRUE(ids.insert(l.id).second) << l.id << " is there twice";
    }
    for (const Symbol& s : op->npu->symbols)
      EXPECT_EQ(joined(unknown_names(*op, s.expr)), "") << op->name << " " << s.name;
  }
}

// With nothing known of a call every limit is open, or holds for all calls; none breaks.
TEST(NpuFacts, LimitsCanBeEvaluatedWithoutKnowingTheCall) {
  for (const OpDef* op : npu_ops()) {
    const std::vector<Value*> inputs(op->parsed().tensors.size());
    const Attrs attrs;
    const Args args(*op, inputs, attrs);
    LimitScope scope{args, "a2", {}, {}, {}};
    for (const Schema::Arg& a : op->parsed().tensors) scope.unknown.insert(a.name);
    for (const Schema::Arg& a : op->parsed().attrs) scope.unknown.insert(a.name);
    for (const Symbol& s : op->npu->symbols) EXPECT_NO_THROW(value_of_symbol(scope, s)) << s.name;
    if (op->npu->a2 == "no") continue;
    for (const LimitResult& r : check_limits(scope))
      EXPECT_NE(r.state, LimitState::violated) << r.limit->id;
  }
}

}  // namespace
}  // namespace tk
