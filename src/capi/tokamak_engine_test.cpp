// The C interface of the engine, as another language uses it.
#include "capi/tokamak_engine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

struct Pool {
  tk_engine_pool* pool = tk_engine_pool_new();
  ~Pool() { tk_engine_pool_delete(pool); }
};

tk_engine_tensor tensor(const char* name, float* data, const std::int64_t* shape,
                        const std::int64_t* strides, int rank) {
  return {name, "f32", data, rank, shape, strides};
}

constexpr std::int64_t three[] = {3}, one[] = {1};

TEST(Engine, RunsOnTheCallersMemoryForAnySize) {
  const Pool pool;
  float weight[] = {1, 2, 3};
  const auto w = tensor("w", weight, three, one, 1);
  tk_engine* e = tk_engine_new(R"(
graph @main(%x: f32[N, 3]) {
  range N 0 1000
  weight %w: f32[3] "w"
  %0 = aten.mul(%x, %w)
  return %0
}
)",
                               &w, 1, nullptr, 0, 1, 1, pool.pool, nullptr);
  ASSERT_NE(e, nullptr) << tk_engine_text();
  for (std::int64_t n = 1; n < 40; ++n) {
    std::vector<float> x(static_cast<std::size_t>(3 * n), 2), y(x.size());
    const std::int64_t shape[] = {n, 3}, strides[] = {1, n};  // columns first
    const auto out = tensor(nullptr, y.data(), shape, strides, 2);
    const std::int64_t rows[] = {3, 1};
    const auto in = tensor(nullptr, x.data(), shape, rows, 2);
    ASSERT_EQ(tk_engine_run(e, &n, 1, nullptr, 0, &in, 1, &out, 1), 0) << tk_engine_text();
    EXPECT_EQ(y.front(), 2);
    EXPECT_EQ(y.back(), 6);
  }
  EXPECT_EQ(tk_engine_describe(e), 0);
  EXPECT_NE(std::string(tk_engine_text()).find("\"kernel\":\"pointwise\""), std::string::npos);
  EXPECT_EQ(tk_engine_graph(e), 0);
  EXPECT_NE(std::string(tk_engine_text()).find("aten.mul"), std::string::npos);
  tk_engine_delete(e);
}

// aten.mul by 1 is no operation to the rewrites, and the result a view of the state.
TEST(Engine, GivesTheOldContentsOfWhatItAssigns) {
  const Pool pool;
  float a[] = {1, 2, 3}, b[] = {4, 5, 6};
  const tk_engine_tensor states[] = {tensor("a", a, three, one, 1), tensor("b", b, three, one, 1)};
  tk_engine* e = tk_engine_new(R"(
graph @main() {
  state %a: f32[3] "a"
  state %b: f32[3] "b"
  %0 = aten.mul(%a) {other=1}
  %1 = aten.mul(%b) {other=1}
  %2 = tk.assign(%a, %1)
  %3 = tk.assign(%b, %0)
  return %0
}
)",
                               nullptr, 0, states, 2, 1, 1, pool.pool, nullptr);
  ASSERT_NE(e, nullptr) << tk_engine_text();
  float old[3];
  const auto out = tensor(nullptr, old, three, one, 1);
  tk_engine_tensor data[] = {states[0], states[1]};
  ASSERT_EQ(tk_engine_run(e, nullptr, 0, data, 2, nullptr, 0, &out, 1), 0) << tk_engine_text();
  EXPECT_EQ(old[0], 1);
  EXPECT_EQ(a[0], 4);
  EXPECT_EQ(b[0], 1);
  float c[] = {7, 8, 9};  // other memory in the next run
  data[1].data = c;
  ASSERT_EQ(tk_engine_run(e, nullptr, 0, data, 2, nullptr, 0, &out, 1), 0) << tk_engine_text();
  EXPECT_EQ(a[0], 7);
  EXPECT_EQ(c[0], 4);
  EXPECT_EQ(b[0], 1);
  tk_engine_delete(e);
}

// Nothing is read of memory that is not what the graph and the symbols say.
TEST(Engine, RefusesArgumentsThatAreNotTheGraphs) {
  const Pool pool;
  float cache[12] = {}, x[12] = {}, y[12] = {};
  const std::int64_t two_six[] = {2, 6}, six_two[] = {6, 2}, rows_of_6[] = {6, 1};
  const std::int64_t rows_of_2[] = {2, 1}, columns[] = {1, 2};
  const auto state = tensor("c", cache, two_six, rows_of_6, 2);
  tk_engine* e = tk_engine_new(R"(
graph @main(%x: f32[A, B]) {
  range A 0 1000
  range B 0 1000
  state %c: f32[A, B] "c"
  %0 = aten.add(%x, %c)
  %1 = tk.assign(%c, %0)
  return %0
}
)",
                               nullptr, 0, &state, 1, 1, 1, pool.pool, nullptr);
  ASSERT_NE(e, nullptr) << tk_engine_text();
  const auto in = tensor(nullptr, x, two_six, rows_of_6, 2);
  const auto out = tensor(nullptr, y, two_six, rows_of_6, 2);
  const auto says = [&](const std::int64_t* symbols, int n, const tk_engine_tensor& c, int n_states,
                        const tk_engine_tensor& from, int n_inputs) {
    const int failed = tk_engine_run(e, symbols, n, &c, n_states, &from, n_inputs, &out, 1);
    return failed == 0 ? std::string("ran") : std::string(tk_engine_text());
  };
  EXPECT_EQ(says(two_six, 2, state, 1, in, 1), "ran");
  const auto swapped = tensor(nullptr, x, six_two, rows_of_2, 2);
  const auto across = tensor(nullptr, x, two_six, columns, 2);
  const auto other = tensor("c", cache, six_two, rows_of_2, 2);
  auto half = in;
  half.dtype = "f16";
  const std::pair<std::string, std::string> cases[] = {
      {says(two_six, 2, state, 1, swapped, 1),
       "input 'x' is f32[2, 6] and contiguous, got f32[6, 2]"},
      {says(two_six, 2, state, 1, across, 1), "got f32[2, 6] with strides [1, 2]"},
      {says(two_six, 2, state, 1, half, 1), "got f16[2, 6]"},
      {says(two_six, 2, other, 1, in, 1), "state 'c' is f32[2, 6], got f32[6, 2]"},
      {says(six_two, 2, state, 1, in, 1), "state 'c' is f32[6, 2], got f32[2, 6]"},
      {says(two_six, 3, state, 1, in, 1), "symbols: the graph has 2, got 3"},
      {says(two_six, 2, state, 0, in, 1), "states: the graph has 1, got 0"},
      {says(two_six, 2, state, 1, in, 2), "inputs: the graph has 1, got 2"},
  };
  for (const auto& [got, want] : cases) {
    EXPECT_NE(got.find("TK0502"), std::string::npos) << got;
    EXPECT_NE(got.find(want), std::string::npos) << got;
  }
  tk_engine_delete(e);
}

// GM-38: found again where only the names and the memory of weights are others; a damaged file is
// made anew with a warning.
TEST(Engine, KeepsPlansOnDisk) {
  const Pool pool;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("tokamak_capi_test_" + std::to_string(::getpid()));
  std::filesystem::remove_all(folder);
  const auto run = [&](const std::string& name, float factor, int threads) {
    float weight[] = {factor, 2, 3};
    const auto w = tensor(name.c_str(), weight, three, one, 1);
    const std::string graph = "graph @main(%x: f32[3]) {\n  weight %w: f32[3] \"" + name +
                              "\"\n  %0 = aten.mul(%x, %w)\n  return %0\n}\n";
    tk_engine* e =
        tk_engine_new(graph.c_str(), &w, 1, nullptr, 0, threads, 1, pool.pool, folder.c_str());
    EXPECT_NE(e, nullptr) << tk_engine_text();
    const std::string warning = tk_engine_text();
    float x[] = {1, 1, 1}, y[3];
    const auto in = tensor(nullptr, x, three, one, 1);
    const auto out = tensor(nullptr, y, three, one, 1);
    EXPECT_EQ(tk_engine_run(e, nullptr, 0, nullptr, 0, &in, 1, &out, 1), 0) << tk_engine_text();
    EXPECT_EQ(y[0], factor);
    tk_engine_delete(e);
    return warning;
  };
  const auto files = [&] {
    return std::distance(std::filesystem::directory_iterator(folder),
                         std::filesystem::directory_iterator());
  };
  EXPECT_EQ(run("one", 5, 1), "");
  EXPECT_EQ(run("two", 7, 1), "");
  EXPECT_EQ(files(), 1);
  EXPECT_EQ(run("one", 5, 2), "");  // another number of threads: another plan
  EXPECT_EQ(files(), 2);
  for (const auto& file : std::filesystem::directory_iterator(folder))
    std::filesystem::resize_file(file, 100);
  EXPECT_NE(run("one", 5, 1).find("cut short"), std::string::npos);
  EXPECT_EQ(run("one", 5, 1), "");
  std::filesystem::permissions(folder, std::filesystem::perms::all);
  EXPECT_EQ(tk_engine_new("graph @main(%x: f32[3]) {\n  return %x\n}\n", nullptr, 0, nullptr, 0, 1,
                          1, pool.pool, folder.c_str()),
            nullptr);
  EXPECT_NE(std::string(tk_engine_text()).find("TK1505"), std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST(Engine, SaysWhatIsWrong) {
  EXPECT_EQ(tk_engine_check("graph @main(%x: f32[2]) {\n  return %x\n}\n"), 0);
  EXPECT_EQ(tk_engine_check("graph @main(%x: f32[2, 3]) {\n  %0 = aten.mm(%x, %x)\n"
                            "  return %0\n}\n"),
            1);
  EXPECT_NE(std::string(tk_engine_text()).find("TK0312"), std::string::npos);
  EXPECT_EQ(tk_engine_check("nonsense"), 1);
  const Pool pool;
  EXPECT_EQ(tk_engine_new("graph @main() {\n  weight %w: f32[3] \"w\"\n  return %w\n}\n", nullptr,
                          0, nullptr, 0, 1, 1, pool.pool, nullptr),
            nullptr);
  EXPECT_NE(std::string(tk_engine_text()).find("TK0503"), std::string::npos);
  EXPECT_EQ(tk_engine_operators(), 0);
}

}  // namespace
