#include "import/safetensors.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/file.h"

namespace tk {
namespace {

template <typename F>
std::string error_of(F f) {
  try {
    f();
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}
bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

std::string file_of(std::string header, std::string_view data) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t n = header.size();
  std::string out(reinterpret_cast<const char*>(&n), sizeof n);
  return out.append(header).append(data);
}

// The bytes at an address that is aligned for any dtype, as a mapped file is.
struct Aligned {
  Tensor storage;
  std::span<const std::byte> bytes;
  explicit Aligned(const std::string& text)
      : storage(Tensor::empty(DType::u8, {static_cast<std::int64_t>(text.size()) + 1})),
        bytes(static_cast<const std::byte*>(storage.data), text.size()) {
    std::memcpy(storage.data, text.data(), text.size());
  }
};
std::string parse_error(const std::string& file) {
  const Aligned a(file);
  return error_of([&] { SafeTensors::parse(a.bytes, "x.safetensors"); });
}
std::string parse_error(std::string_view header, std::string_view data) {
  return parse_error(file_of(std::string(header), data));
}

// A folder of its own, gone at the end.
struct Folder {
  std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) /
      cat("tk_safetensors_", ::testing::UnitTest::GetInstance()->current_test_info()->name());
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

TEST(SafeTensors, ViewsIntoTheBytes) {
  const Aligned a(file_of(
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"s":{"dtype":"I64","shape":[],"data_offsets":[8,16]}}   )",
      std::string("\0\0\x80\x3f\0\0\0\x40\x07\0\0\0\0\0\0\0", 16)));
  const SafeTensors file = SafeTensors::parse(a.bytes, "x.safetensors");
  EXPECT_EQ(file.names(), (std::vector<std::string>{"w", "s"}));
  const Tensor* w = file.find("w");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->shape, (Dims{1, 2}));
  EXPECT_EQ(element(*w, 0), 1.0);
  EXPECT_EQ(element(*w, 1), 2.0);
  EXPECT_EQ(w->data, a.bytes.data() + a.bytes.size() - 16);
  EXPECT_EQ(element(*file.find("s"), 0), 7.0);
  EXPECT_EQ(file.find("absent"), nullptr);
}

TEST(SafeTensors, DataThatIsNotAlignedIsCopied) {
  const Aligned a(file_of(
      R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
      std::string("\1\0\0\x80\x3f", 5)));
  const SafeTensors file = SafeTensors::parse(a.bytes, "x.safetensors");
  EXPECT_EQ(element(*file.find("w"), 0), 1.0);
}

TEST(SafeTensors, NotSafetensors) {
  for (const std::string& bad :
       {std::string(), std::string("1234567"), std::string(8, '\xff'), std::string(20, '\0'),
        std::string("version https://git-lfs.github.com/spec/v1"), file_of("[]", "")})
    EXPECT_TRUE(has(parse_error(bad), "TK0120")) << parse_error(bad);
  EXPECT_TRUE(has(parse_error("{\"w\": 1,}", ""), "TK0110"));
  EXPECT_TRUE(has(parse_error("{\"w\": 1}", ""), "TK0111"));
}

TEST(SafeTensors, HeadersThatContradictTheFile) {
  auto one = [](std::string_view dtype, std::string_view shape, std::string_view offsets,
                std::size_t n_bytes) {
    return parse_error(cat(R"({"w":{"dtype":")", dtype, R"(","shape":)", shape,
                           R"(,"data_offsets":)", offsets, "}}"),
                       std::string(n_bytes, '\0'));
  };
  EXPECT_EQ(one("F32", "[2]", "[0,8]", 8), "");
  EXPECT_EQ(one("F32", "[0,5]", "[0,0]", 0), "");
  EXPECT_TRUE(has(one("F32", "[2]", "[0,8]", 7), "TK0121"));  // cut short
  EXPECT_TRUE(has(one("F32", "[2]", "[0,8]", 9), "after its last tensor"));
  EXPECT_TRUE(has(one("F32", "[2]", "[4,12]", 12), "a gap ends"));
  EXPECT_TRUE(has(one("F32", "[3]", "[0,8]", 8), "has 8 bytes, which are not F32 of its shape"));
  EXPECT_TRUE(has(one("F32", "[4611686018427387904,4]", "[0,0]", 0), "TK0121"));
  EXPECT_TRUE(has(one("F32", "[0,4611686018427387904,4]", "[0,0]", 0), "TK0121"));
  EXPECT_TRUE(has(one("F32", "[-2]", "[0,8]", 8), "negative size"));
  EXPECT_TRUE(has(one("F32", "[2]", "[8,0]", 8), "TK0111"));
  EXPECT_TRUE(has(one("F32", "[2]", "[0]", 8), "TK0111"));
  EXPECT_TRUE(has(one("F32", "[2.5]", "[0,8]", 8), "TK0111"));
  EXPECT_TRUE(has(one("F32", "[2]", "[0,9223372036854775807]", 8), "TK0121"));
  EXPECT_TRUE(has(
      parse_error(
          R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
          "123"),
      "another tensor lies"));
  EXPECT_TRUE(has(
      parse_error(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
          "12"),
      "is there twice"));
}

TEST(SafeTensors, OtherTypesAreAnErrorWhenAskedFor) {
  const Aligned a(file_of(
      R"({"q":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]},"r":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[2,3]},"w":{"dtype":"U8","shape":[1],"data_offsets":[3,4]},"n":{"dtype":"","shape":[1],"data_offsets":[4,5]}})",
      "12345"));
  const SafeTensors file = SafeTensors::parse(a.bytes, "x.safetensors");
  EXPECT_NE(file.find("w"), nullptr);
  EXPECT_TRUE(has(error_of([&] { file.find("n"); }), "TK0122"));  // the fuzzer found this one
  EXPECT_TRUE(has(error_of([&] { file.find("q"); }), "is 'F8_E4M3'; Tokamak reads F64, F32"));
  EXPECT_TRUE(has(error_of([&] { file.find("r"); }), "U8 of rank 9"));
}

TEST(SafeTensors, WritesWhatItReads) {
  const Folder folder;
  const Tensor a = Tensor::of({1, 2, 3, 4, 5, 6});
  TensorView transposed = a;
  transposed.shape = {2, 3};
  transposed.strides = {1, 2};
  const Tensor flag = to_dtype(Tensor::of({1}), DType::boolean);
  const Tensor half = to_dtype(a, DType::bf16), wide = to_dtype(a, DType::i64);
  const auto path = folder.path / "model.safetensors";
  write_safetensors(path,
                    {{"flag", flag}, {"half \"x\"", half}, {"t", transposed}, {"wide", wide}});
  const SafeTensors file = SafeTensors::open(folder.path);
  EXPECT_EQ(file.names(), (std::vector<std::string>{"wide", "t", "half \"x\"", "flag"}));
  EXPECT_EQ(file.find("t")->shape, (Dims{2, 3}));
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(element(*file.find("t"), i), element(transposed, i));
    EXPECT_EQ(element(*file.find("half \"x\""), i), i + 1);
    EXPECT_EQ(element(*file.find("wide"), i), i + 1);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path), {}), 1);
  EXPECT_TRUE(has(error_of([&] { write_safetensors(path, {{"a", a}, {"a", a}}); }), "TK0121"));
  EXPECT_TRUE(has(error_of([&] { write_safetensors(path, {{"\xff", a}}); }), "not UTF-8"));
  EXPECT_TRUE(
      has(error_of([&] { write_safetensors(folder.path / "no/such", {{"a", a}}); }), "TK0103"));
}

TEST(SafeTensors, ShardsByIndex) {
  const Folder folder;
  const Tensor a = Tensor::of({1, 2}), b = Tensor::of({3});
  write_safetensors(folder.path / "one.safetensors", {{"a", a}, {"unused", b}});
  write_safetensors(folder.path / "two.safetensors", {{"b", b}});
  const auto index = folder.path / "model.safetensors.index.json";
  write_file(index, R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})");
  const SafeTensors set = SafeTensors::open(folder.path);
  EXPECT_EQ(set.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(element(*set.find("b"), 0), 3.0);
  EXPECT_TRUE(has(set.entries()[1].file, "two.safetensors"));

  auto error = [&](std::string_view text) {
    write_file(index, text);
    return error_of([&] { SafeTensors::open(index); });
  };
  EXPECT_TRUE(has(error(R"({"weight_map": {"a": "three.safetensors"}})"), "TK0123"));
  EXPECT_TRUE(has(error(R"({"weight_map": {"c": "one.safetensors"}})"), "holds no 'c'"));
  EXPECT_TRUE(has(error(R"({"weight_map": {"a": "../one.safetensors"}})"), "same folder"));
  EXPECT_TRUE(has(error(R"({"weight_map": {"a": "one.safetensors", "a": "one.safetensors"}})"),
                  "is there twice"));
  EXPECT_TRUE(has(error(R"({"metadata": {}})"), "weight_map"));
  std::filesystem::remove(index);
  const std::string none = error_of([&] { SafeTensors::open(folder.path); });
  EXPECT_TRUE(has(none, "TK0123") && has(none, "one.safetensors")) << none;
}

TEST(SafeTensors, TheSharedModels) {
  const char* set = std::getenv("TOKAMAK_SHARED");
  const std::filesystem::path shared = set != nullptr ? set : TK_SOURCE_DIR "/../shared";
  const auto path = shared / "models/stories260k/hf/model.safetensors";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
  const SafeTensors file = SafeTensors::open(path);
  ASSERT_NE(file.find("model.embed_tokens.weight"), nullptr);
  EXPECT_EQ(file.find("model.embed_tokens.weight")->shape, (Dims{512, 64}));
  EXPECT_EQ(file.find("model.embed_tokens.weight")->dtype, DType::f32);
}

}  // namespace
}  // namespace tk
