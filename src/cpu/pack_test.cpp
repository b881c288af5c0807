// Packed weights: the same results, one copy, and a file that is refused when it can't be trusted.
#include "cpu/pack.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "cpu/engine.h"
#include "cpu/kernels/linear.h"

namespace tk {
namespace {

namespace fs = std::filesystem;

Tensor noise(DType dtype, const Dims& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> d(0, 0.3);
  Tensor t = Tensor::empty(dtype, shape);
  for (std::int64_t i = 0; i < t.numel(); ++i) set_element(t, i, d(random));
  return t;
}

// The head is tied to the embedding; %m is computed from two weights; %e holds three experts; the
// last product's N is no multiple of a panel.
constexpr const char* text = R"(
graph @f(%ids: i64[T], %counts: i64[3]) {
  weight %embed: bf16[96, 64] "embed"
  weight %a: bf16[64, 64] "a"
  weight %b: bf16[32, 64] "b"
  weight %glu: bf16[128, 64] "glu"
  weight %e: bf16[3, 64, 64] "experts"
  weight %odd: bf16[7, 64] "odd"
  %x = aten.embedding(%embed, %ids)
  %m = aten.cat(%a, %b) {dim=0}
  %y = aten.linear(%x, %m)
  %head = aten.linear(%x, %embed)
  %s = aten.add(%y, %head)
  %g = tk.linear_glu(%x, %glu)
  %w = npu.npu_grouped_matmul(%g, %e, none, %counts) {group_list_type=1}
  %o = aten.linear(%w, %odd)
  return %s, %o
})";

Weights weights() {
  return {
      {"embed", noise(DType::bf16, {96, 64}, 1)},      {"a", noise(DType::bf16, {64, 64}, 2)},
      {"b", noise(DType::bf16, {32, 64}, 3)},          {"glu", noise(DType::bf16, {128, 64}, 4)},
      {"experts", noise(DType::bf16, {3, 64, 64}, 5)}, {"odd", noise(DType::bf16, {7, 64}, 6)}};
}

std::vector<Tensor> inputs(std::int64_t rows) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < rows; ++i) ids.push_back(i * 37 % 96);
  return {Tensor::ids(ids), Tensor::ids(std::vector<std::int64_t>{rows / 2, 0, rows - rows / 2})};
}

std::vector<Tensor> run(const PackConstant& pack, std::int64_t rows, bool reference = false) {
  Team team(2);
  EngineOptions options;
  options.prepare.reference_only = reference;
  Engine e(make_plan(parse_graph(text), weights(), nullptr, pack), {}, &team,
           std::make_shared<EngineMemory>(), options);
  return e.run(inputs(rows));
}

void expect_equal(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t t = 0; t < got.size(); ++t)
    for (std::int64_t i = 0; i < want[t].numel(); ++i) {
      const double w = element(want[t], i);
      ASSERT_NEAR(element(got[t], i), w, 0.02 * std::abs(w) + 0.02) << t << " at " << i;
    }
}

TEST(pack, a_packed_plan_computes_the_same) {
  Team team(2);
  const Weights w = weights();
  WeightPacker packer(&team, w);
  const PackConstant pack = [&](const ConstantInput& c) { return packer(c); };
  const Plan plan = make_plan(parse_graph(text), w, nullptr, pack);
  int n = 0;
  for (const bool packed : plan.packed) n += packed ? 1 : 0;
  EXPECT_EQ(n, 4);  // m, embed as head, glu, experts
  EXPECT_EQ(packer.bytes(), 2 * (96 * 64 + 96 * 64 + 128 * 64 + 3 * 64 * 64));
  for (const std::int64_t rows : {1, 2, 40})
    expect_equal(run(pack, rows), run(nullptr, rows, true));
}

// Operands that no kernel takes leave the step to the reference, which sees the weight unpacked.
TEST(pack, the_reference_reads_packed_weights) {
  Team team(1);
  WeightPacker packer(&team, weights());
  const PackConstant pack = [&](const ConstantInput& c) { return packer(c); };
  expect_equal(run(pack, 5, true), run(nullptr, 5, true));
}

TEST(pack, plans_share_one_copy) {
  Team team(1);
  const Weights w = weights();
  WeightPacker packer(&team, w);
  const PackConstant pack = [&](const ConstantInput& c) { return packer(c); };
  const Plan a = make_plan(parse_graph(text), w, nullptr, pack);
  const std::int64_t bytes = packer.bytes();
  const Plan b = make_plan(parse_graph(text), w, nullptr, pack);
  EXPECT_EQ(packer.bytes(), bytes);
}

class packed_file : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / cat("tk_packed_", ::getpid());
    fs::create_directories(folder_);
    ::setenv("TOKAMAK_CACHE", folder_.c_str(), 1);
    tensors_["one"] = noise(DType::bf16, {1000}, 1);
    tensors_["two"] = noise(DType::bf16, {700000}, 2);  // two blocks
    ASSERT_TRUE(PackedFile::find("weights")->write(tensors_));
    path_ = PackedFile::find("weights")->path();
  }
  void TearDown() override {
    ::unsetenv("TOKAMAK_CACHE");
    fs::remove_all(folder_);
  }
  bool reads(const std::string& key) {
    Team team(2);
    const Tensor& want = tensors_.at(key);
    const Tensor got = PackedFile::find("weights")->map(key, want.bytes(), &team);
    if (got.data == nullptr) return false;
    EXPECT_EQ(std::memcmp(got.data, want.data, static_cast<std::size_t>(want.bytes())), 0);
    return true;
  }
  void change_byte(std::int64_t at) {
    std::fstream f(path_, std::ios::in | std::ios::out | std::ios::binary);
    f.seekg(at);
    const int c = f.get();
    f.seekp(at);
    f.put(static_cast<char>(c ^ 1));
  }
  fs::path folder_, path_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

TEST_F(packed_file, gives_back_what_was_written) {
  EXPECT_TRUE(reads("one"));
  EXPECT_TRUE(reads("two"));
  EXPECT_FALSE(PackedFile::find("weights")->has("one", 1998));
  EXPECT_FALSE(PackedFile::find("other weights")->has("one", 2000));
  for (const auto& entry : fs::directory_iterator(folder_)) EXPECT_EQ(entry.path(), path_);
}

TEST_F(packed_file, damaged_contents_are_refused) {
  change_byte(static_cast<std::int64_t>(fs::file_size(path_)) - 8192);
  EXPECT_TRUE(reads("one"));
  EXPECT_FALSE(reads("two"));
  change_byte(60);
  EXPECT_FALSE(reads("one"));
}

TEST_F(packed_file, a_short_file_is_refused) {
  fs::resize_file(path_, fs::file_size(path_) / 2);
  EXPECT_FALSE(reads("two"));
  fs::resize_file(path_, 10);
  EXPECT_FALSE(reads("one"));
  ASSERT_TRUE(PackedFile::find("weights")->write(tensors_));
  EXPECT_TRUE(reads("two"));
}

TEST_F(packed_file, a_file_that_others_may_write_is_refused) {
  ::chmod(path_.c_str(), 0666);
  EXPECT_FALSE(reads("one"));
  fs::remove(path_);
  fs::create_symlink("/dev/null", path_);
  EXPECT_FALSE(reads("one"));
}

TEST(packed_file_off, no_folder) {
  ::setenv("TOKAMAK_CACHE", "off", 1);
  EXPECT_EQ(PackedFile::find("weights"), nullptr);
  ::unsetenv("TOKAMAK_CACHE");
}

}  // namespace
}  // namespace tk
