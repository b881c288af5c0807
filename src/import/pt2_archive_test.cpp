#include "import/pt2_archive.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zip.h>  // libzip, as an independent writer

#include <cstring>
#include <map>

#include "base/error.h"
#include "import/pt2_test_util.h"
#include "ops/interpret.h"

namespace tk {
namespace {

namespace fs = std::filesystem;
using Entries = std::map<std::string, std::string>;

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

class Archive : public testing::Test {
 protected:
  void SetUp() override {
    path_ = fs::temp_directory_path() /
            cat("tk_archive_", ::getpid(), "_",
                testing::UnitTest::GetInstance()->current_test_info()->name(), ".pt2");
  }
  void TearDown() override { fs::remove(path_); }

  Pt2Archive open(const Entries& entries, bool deflated = false) {
    fs::remove(path_);
    zip_t* z = zip_open(path_.c_str(), ZIP_CREATE, nullptr);
    for (const auto& [name, data] : entries) {
      zip_source_t* source = zip_source_buffer(z, data.data(), data.size(), 0);
      const auto index = static_cast<zip_uint64_t>(zip_file_add(z, name.c_str(), source, 0));
      zip_set_file_compression(z, index, deflated ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0);
    }
    EXPECT_EQ(zip_close(z), 0);
    return Pt2Archive::open(path_);
  }
  std::string error(const Entries& entries) {
    try {
      open(entries).weights();
    } catch (const UserError& e) {
      return e.what();
    }
    return "no error";
  }

  fs::path path_;
};

std::string config(std::string_view sizes, std::string_view strides, std::string_view offset = "0",
                   std::string_view record = "weight_0") {
  return cat(R"({"config": {"w": {"path_name": ")", record,
             R"(", "is_param": true, "use_pickle": false, "tensor_meta": {"dtype": 7, "sizes": )",
             sizes, R"(, "strides": )", strides, R"(, "storage_offset": {"as_int": )", offset,
             "}}}}}");
}
constexpr std::string_view two_by_three = R"([{"as_int": 2}, {"as_int": 3}])";
constexpr std::string_view rows = R"([{"as_int": 3}, {"as_int": 1}])";

std::string floats(std::initializer_list<float> values) {
  std::string out(values.size() * sizeof(float), '\0');
  std::memcpy(out.data(), values.begin(), out.size());
  return out;
}

Entries with_weight(const std::string& weights_config, const std::string& data) {
  return {{"m/models/model.json", "{}"},
          {"m/data/weights/model_weights_config.json", weights_config},
          {"m/data/weights/weight_0", data}};
}

TEST_F(Archive, WeightsOfBothKinds) {
  const std::string data = floats({0, 1, 2, 3, 4, 5});
  for (const bool deflated : {false, true}) {
    const Weights w = open(with_weight(config(two_by_three, rows), data), deflated).weights();
    ASSERT_EQ(w.count("w"), 1U);
    EXPECT_EQ(w.at("w").shape, (Dims{2, 3}));
    EXPECT_EQ(element(w.at("w"), 4), 4);
  }
}

TEST_F(Archive, PartsOfAStorageAndTransposes) {
  const std::string data = floats({9, 0, 3, 1, 4, 2, 5});
  const Weights w =
      open(with_weight(config(two_by_three, R"([{"as_int": 1}, {"as_int": 2}])", "1"), data))
          .weights();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(element(w.at("w"), i), i);
}

TEST_F(Archive, RecordsWithoutBytesAreNoWeights) {
  EXPECT_TRUE(open(with_weight(config(two_by_three, rows), "")).weights().empty());
}

TEST_F(Archive, NotACapture) {
  EXPECT_TRUE(has(error({{"m/data.pkl", "x"}}), "error[TK0201]"));
  EXPECT_TRUE(has(error({{"a/models/model.json", "{}"}, {"b/models/model.json", "{}"}}),
                  "has 2 files models/model.json"));
  EXPECT_TRUE(has(error({{"m/models/model.json", "{}"}, {"m/byteorder", "big"}}), "big-endian"));
}

TEST_F(Archive, BrokenWeights) {
  const std::string data = floats({0, 1, 2, 3, 4});
  EXPECT_TRUE(has(error(with_weight(config(two_by_three, rows), data)),
                  "error[TK0208]: the weight 'w' is f32[2, 3] by its type, but its record has 20 "
                  "bytes"));
  EXPECT_TRUE(has(error(with_weight(config(two_by_three, rows, "-1"), data)), "TK0208"));
  EXPECT_TRUE(
      has(error(with_weight(config(two_by_three, rows, "9223372036854775807"), data)), "TK0208"));
  EXPECT_TRUE(
      has(error(with_weight(config(two_by_three, R"([{"as_int": -3}, {"as_int": 1}])"), data)),
          "TK0208"));
  EXPECT_TRUE(has(error(with_weight(config(R"([{"as_int": -2}])", R"([{"as_int": 1}])"), data)),
                  "impossible sizes"));
  EXPECT_TRUE(
      has(error(with_weight(config(two_by_three, R"([{"as_int": 1}])"), data)), "different rank"));
  EXPECT_TRUE(has(error(with_weight(config(two_by_three, rows, "0", "weight_9"), data)),
                  "has no record m/data/weights/weight_9"));
  std::string pickled = config(two_by_three, rows);
  pickled.replace(pickled.find("false"), 5, "true");
  EXPECT_TRUE(has(error(with_weight(pickled, data)), "is pickled"));
}

TEST(Opaque, CannotBeRun) {
  CaptureText c;
  c.unary("torch.ops.aten.fancy.default", "x", "y");
  c.output("y");
  const Pt2Graph imported = c.import({.allow_unknown = true, .output = {}});
  const std::vector<Tensor> inputs{Tensor::zeros(DType::f32, {1, 2, 4})};
  try {
    interpret(imported.graph, inputs, {});
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), "TK0211");
    EXPECT_TRUE(has(e.what(), "aten.fancy.default"));
  }
}

}  // namespace
}  // namespace tk
