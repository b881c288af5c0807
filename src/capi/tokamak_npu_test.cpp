#include "capi/tokamak_npu.h"

#include <gtest/gtest.h>

#include <string>

namespace {

using std::string;

tk_npu_tensor tensor(const char* dtype, const char* shape, void* data = nullptr,
                     const int64_t* strides = nullptr) {
  return {dtype, shape, data, strides};
}

TEST(CApi, OperatorsAreListedWithTheirSignature) {
  ASSERT_EQ(tk_npu_operators(), 0);
  EXPECT_NE(string(tk_npu_text()).find(R"("name":"npu_moe_gating_top_k")"), string::npos);
  EXPECT_NE(string(tk_npu_text()).find("npu_moe_gating_top_k(Tensor x, int k, *"), string::npos);
}

TEST(CApi, InfersSymbolicSizes) {
  const tk_npu_tensor x = tensor("bf16", "[B*S, 64]");
  const tk_npu_call call{"npu_swiglu", &x, 1, nullptr, 0};
  ASSERT_EQ(tk_npu_infer(&call), 0) << tk_npu_text();
  EXPECT_EQ(string(tk_npu_text()), R"([["bf16",["B*S","32"]]])");
}

TEST(CApi, RunsOnAnyStridesAndRefusesInWords) {
  float data[] = {0, 9, 1, 9, 2, 9, 3, 9};  // every other one
  const int64_t strides[] = {4, 2};
  float result[2] = {-1, -1};
  const tk_npu_tensor x = tensor("f32", "[2, 2]", data, strides);
  const tk_npu_tensor out = tensor("f32", "[2, 1]", result);
  const tk_npu_call call{"npu_swiglu", &x, 1, nullptr, 0};
  ASSERT_EQ(tk_npu_run(&call, &out, 1), 0) << tk_npu_text();
  EXPECT_FLOAT_EQ(result[0], 0);
  EXPECT_NEAR(result[1], 2 / (1 + 0.1353352832) * 3, 1e-5);

  const tk_npu_tensor odd = tensor("f32", "[2, 3]");
  const tk_npu_call refused{"npu_swiglu", &odd, 1, nullptr, 0};
  EXPECT_EQ(tk_npu_infer(&refused), 1);
  EXPECT_NE(string(tk_npu_text()).find("npu_swiglu"), string::npos) << tk_npu_text();
  const tk_npu_call unknown{"npu_nothing", &odd, 1, nullptr, 0};
  EXPECT_EQ(tk_npu_infer(&unknown), 2);
}

TEST(CApi, ChangesInputsInPlaceWhateverTheirStrides) {
  float data[] = {0, 0, 0, 0, 0, 0};
  const int64_t strides[] = {1, 3};  // [3, 2], transposed
  int64_t index[] = {2};
  float update[] = {5, 6};
  const tk_npu_tensor inputs[] = {tensor("f32", "[3, 2]", data, strides),
                                  tensor("i64", "[1, 1]", index), tensor("f32", "[1, 2]", update)};
  const tk_npu_tensor out = {};
  const tk_npu_call call{"npu_scatter_nd_update_", inputs, 3, nullptr, 0};
  ASSERT_EQ(tk_npu_run(&call, &out, 1), 0) << tk_npu_text();
  EXPECT_EQ(data[2], 5);
  EXPECT_EQ(data[5], 6);
}

TEST(CApi, LimitsComeWithValuesAndTheSmallestChange) {
  const tk_npu_tensor inputs[] = {tensor("f32", "[4, 96]"), tensor(nullptr, nullptr),
                                  tensor(nullptr, nullptr), tensor(nullptr, nullptr)};
  const tk_npu_attr attrs[] = {{"k", "8"}, {"k_group", "4"}, {"group_count", "48"}};
  const tk_npu_call call{"npu_moe_gating_top_k", inputs, 4, attrs, 3};
  ASSERT_EQ(tk_npu_check(&call, "a3", nullptr, 0), 0) << tk_npu_text();
  const string found = tk_npu_text();
  EXPECT_NE(found.find("moe_gating_top_k.g"), string::npos) << found;
  EXPECT_NE(found.find(R"("change":{"name":"g","from":"48","to":"32"})"), string::npos) << found;
}

}  // namespace
