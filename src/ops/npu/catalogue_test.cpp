#include "ops/npu/catalogue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "ops/npu/stated_call.h"

namespace tk {
namespace {

const std::string document = TK_SOURCE_DIR "/tests/data/ops/op_plugin_docs.py";

std::vector<std::string> names(const std::vector<const OpEntry*>& entries) {
  std::vector<std::string> list;
  for (const OpEntry* e : entries) list.push_back(e->name);
  return list;
}

const OpDef& op(const char* name) { return *find_op(std::string("npu.") + name); }

TEST(OpCatalogue, ADocumentAddsItsEntriesAndTextOnce) {  // FU-40
  const OpCatalogue c = op_catalogue(document);
  EXPECT_EQ(c.entries.size(), op_catalogue().entries.size() + 1);
  const OpEntry* rms = find_entry(c, "torch_npu.npu_rms_norm");
  ASSERT_NE(rms, nullptr);
  EXPECT_NE(rms->text.find("first entry"), std::string::npos);
  EXPECT_EQ(rms->text.find("second entry"), std::string::npos);
  const OpEntry* other = find_entry(c, "npu_of_tomorrow");
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(other->op, nullptr);
  EXPECT_TRUE(c.is_documented(*other));
  EXPECT_EQ(headline(*other).size(), 150U);
  EXPECT_TRUE(headline(*other).ends_with("..."));
  EXPECT_FALSE(c.is_documented(*find_entry(c, "npu_group_quant")));
}

TEST(OpCatalogue, ADocumentWithoutEntriesIsRefused) {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "tk_no_entries.py";
  write_file(file, "print('nothing')\n");
  try {
    op_catalogue(file.string());
    ADD_FAILURE();
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), "TK0320");
  }
  std::filesystem::remove(file);
  EXPECT_THROW(op_catalogue("/nowhere/docs.py"), UserError);
}

TEST(OpCatalogue, SearchFindsAllWordsWhateverTheirCase) {
  const OpCatalogue c = op_catalogue(document);
  const auto found = names(search_entries(c, "RMS norm quant"));
  ASSERT_GE(found.size(), 3U);
  EXPECT_EQ(found[0], "npu_add_rms_norm_dynamic_quant");
  EXPECT_EQ(names(search_entries(c, "Anybody WOULD like")),
            (std::vector<std::string>{"npu_of_tomorrow"}));
  EXPECT_TRUE(search_entries(c, "no such words").empty());
}

TEST(OpCatalogue, AnUnknownNameHasRelatives) {
  const auto near = nearest_entries(op_catalogue(), "npu_rms_nrom");
  ASSERT_FALSE(near.empty());
  EXPECT_EQ(near[0], "npu_rms_norm");
  const auto longer = nearest_entries(op_catalogue(), "npu_add_rms_norm_v3");
  EXPECT_NE(std::find(longer.begin(), longer.end(), "npu_add_rms_norm_v2"), longer.end());
  EXPECT_TRUE(nearest_entries(op_catalogue(), "zzzzzzzz").empty());
}

TEST(OpCatalogue, SearchOfTheWholeTableIsFast) {
  const auto start = std::chrono::steady_clock::now();
  const OpCatalogue c = op_catalogue(document);
  const auto found = search_entries(c, "attention");
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 50);
  EXPECT_FALSE(found.empty());
}

TEST(StatedCall, ACallIsLegalRefusedOrPending) {  // FU-07, FU-41
  StatedCall call;
  call.shapes = {"x=[4, 64]"};
  call.dtypes = {"x=bf16"};
  CheckedCall c = check_stated(op("npu_rms_norm"), call, "a2");
  EXPECT_EQ(c.legal, Legal::yes) << c.why;
  EXPECT_EQ(c.unknown, (std::vector<std::string>{"gamma"}));
  EXPECT_EQ(c.rows[0].result.state, LimitState::unknown);  // gamma's dtype is not stated

  c = check_stated(op("npu_rms_norm"), call, "");
  EXPECT_EQ(c.legal, Legal::pending);
  c = check_stated(op("npu_swiglu"), call, "a3");
  EXPECT_EQ(c.legal, Legal::pending);
  EXPECT_NE(c.why.find("does not name a3"), std::string::npos);
  c = check_stated(op("npu_dynamic_mx_quant"), {}, "a2");
  EXPECT_EQ(c.legal, Legal::no);
  EXPECT_NE(c.why.find("not there on a2"), std::string::npos);
}

TEST(StatedCall, TheSmallestLegalChangeIsSaid) {  // FU-64
  StatedCall call;
  call.shapes = {"x=[2, 1030]"};
  call.dtypes = {"fp16"};
  const CheckedCall c = check_stated(op("npu_gelu_mul"), call, "a2");
  EXPECT_EQ(c.legal, Legal::no);
  EXPECT_EQ(c.why, "fails gelu_mul.last");
  ASSERT_TRUE(c.rows[0].change);
  EXPECT_EQ(c.rows[0].change->name, "input.shape[-1]");
  EXPECT_EQ(c.rows[0].change->to, "1024");
}

TEST(StatedCall, SymbolsOverrideAndSizesMayBeSymbols) {
  StatedCall call;
  call.shapes = {"input=[T, 64]", "r1=[T, 1, 64]"};
  call.dtypes = {"bf16"};
  call.symbols = {"D=1000"};
  const CheckedCall c = check_stated(op("npu_rotary_mul"), call, "a2");
  EXPECT_EQ(c.rows[0].result.state, LimitState::violated);
  EXPECT_EQ(c.rows[0].result.values, "D = 1000");
}

TEST(StatedCall, WhatAnOperatorItselfRefusesCounts) {
  StatedCall call;
  call.shapes = {"input=[2, 64]", "gamma=[63]"};
  call.dtypes = {"bf16"};
  const CheckedCall c = check_stated(op("npu_rms_norm"), call, "a2");
  EXPECT_EQ(c.legal, Legal::no);
  EXPECT_NE(c.refused.find("gamma"), std::string::npos);
}

TEST(StatedCall, NamesAndValuesThatCannotBe) {
  const auto code = [](StatedCall call) -> std::string {
    try {
      check_stated(op("npu_moe_gating_top_k"), call, "a2");
    } catch (const UserError& e) {
      return e.code();
    }
    return "";
  };
  EXPECT_EQ(code({{"y=[2]"}, {"bf16"}, {}, {}}), "TK0322");
  EXPECT_EQ(code({{}, {}, {"kk=2"}, {}}), "TK0322");
  EXPECT_EQ(code({{}, {}, {}, {"He=5120"}}), "TK0322");
  EXPECT_EQ(code({{"x"}, {"bf16"}, {}, {}}), "TK0323");
  EXPECT_EQ(code({{"x=7"}, {"bf16"}, {}, {}}), "TK0323");
  EXPECT_EQ(code({{"x=[2, -1]"}, {"bf16"}, {}, {}}), "TK0323");
  EXPECT_EQ(code({{"x=[2, 8]"}, {}, {}, {}}), "TK0323");
  EXPECT_EQ(code({{}, {"x=bf17"}, {}, {}}), "TK0323");
  EXPECT_EQ(code({{}, {}, {"k=["}, {}}), "TK0310");
  EXPECT_EQ(code({{}, {}, {"k=1.5"}, {}}), "TK0323");
  EXPECT_EQ(code({{"x=[2, 64]"}, {"bf16"}, {"k=8"}, {"graph=true"}}), "");
}

}  // namespace
}  // namespace tk
