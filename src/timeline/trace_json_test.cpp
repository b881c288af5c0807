#include "timeline/trace_json.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace tk {
namespace {

class TraceJson : public testing::Test {
 protected:
  TraceRead read(const std::string& text, bool allow = false, int threads = 2) {
    path_ =
        std::filesystem::temp_directory_path() / ("tk_trace_" + std::to_string(getpid()) + ".json");
    std::ofstream(path_, std::ios::binary) << text;
    return read_trace(path_, {allow, 0, threads});
  }
  std::string error_of(const std::string& text) {
    try {
      read(text);
    } catch (const UserError& e) {
      return e.code();
    }
    return "no error";
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::filesystem::path path_;
};

const std::string meta =
    R"({"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "Ascend Hardware"}})";

std::string kernel(int i, const std::string& name = "MatMul") {
  return R"({"name": ")" + name + R"(", "pid": 7, "tid": 3, "ts": "17861022599)" +
         std::to_string(100000 + i).substr(1) +
         R"(.320", "dur": 1.25, "args": {"Task Type": "AI_CORE", "connection_id": )" +
         std::to_string(i) + R"(}, "ph": "X"})";
}

TEST_F(TraceJson, ReadsSpansExactly) {
  const TraceRead r = read("[" + kernel(1) + ", " + meta + "," + kernel(2) + "]");
  ASSERT_EQ(r.trace.device.size(), 2u);
  EXPECT_EQ(r.trace.device[0].duration, 1250);
  EXPECT_EQ(r.trace.device[1].start - r.trace.device[0].start, 1000);
  EXPECT_EQ(r.trace.device[0].tid, 3);
  EXPECT_EQ(r.trace.device[1].connection, 2);
}

TEST_F(TraceJson, ObjectForm) {
  EXPECT_EQ(read(R"({"schema": 1, "traceEvents": [)" + meta + "," + kernel(1) +
                 R"(], "displayTimeUnit": "ns"})")
                .trace.device.size(),
            1u);
}

TEST_F(TraceJson, ManyChunksAndNamesThatLookLikeEnds) {
  // Names hold what separates events; a wrong guess of a chunk's end must be noticed.
  std::string text = "[" + meta;
  for (int i = 0; i < 40000; ++i)
    text += ",\n" + kernel(i % 9999, i % 3 ? "a}, {b" : "q\\\"}, {\\\"x");
  text += "]";
  ASSERT_GT(text.size(), 4u << 20);
  EXPECT_EQ(read(text).trace.device.size(), 40000u);
  EXPECT_EQ(read(text, false, 1).trace.device.size(), 40000u);
}

TEST_F(TraceJson, NestedArgumentsWithObjectsInLists) {
  std::string text = "[" + meta;
  const std::string nested =
      R"({"name": "aten::x", "ph": "X", "pid": 1, "tid": 1, "ts": 5, "dur": 1, "args": {"list": [{"a": 1}, {"b": [2]}, {"c": {}}]}})";
  for (int i = 0; i < 20000; ++i) text += ", " + nested;
  text += "," + kernel(1) + "]";
  EXPECT_EQ(read(text).trace.events, 20002u);
}

TEST_F(TraceJson, CutFiles) {  // KD "damage", PF-34
  const std::string text = "[" + meta + "," + kernel(1) + "," + kernel(2) + "]";
  EXPECT_EQ(error_of(text.substr(0, text.size() - 1)), "TK0909");
  EXPECT_EQ(error_of(text.substr(0, text.size() - 20)), "TK0909");
  EXPECT_EQ(read(text.substr(0, text.size() - 1), true).trace.device.size(), 2u);
  EXPECT_EQ(read(text.substr(0, text.size() - 20), true).trace.device.size(), 1u);
  EXPECT_TRUE(read(text.substr(0, text.size() - 20), true).trace.truncated);
}

TEST_F(TraceJson, DamagedFiles) {
  EXPECT_EQ(error_of(""), "TK0908");
  EXPECT_EQ(error_of("hello"), "TK0908");
  EXPECT_EQ(error_of("{\"a\": 1}"), "TK0908");
  EXPECT_EQ(error_of("[1, 2, 3]"), "TK0908");
  EXPECT_EQ(error_of("[" + meta + "," + kernel(1) + "x," + kernel(2) + "]"), "TK0908");
  EXPECT_EQ(error_of(std::string(2000000, '[')), "TK0909");
  EXPECT_EQ(read("[]").trace.events, 0u);
}

TEST_F(TraceJson, NonUtf8Names) {
  const TraceRead r = read("[" + meta + "," + kernel(1, "a\xFF") + "]");
  ASSERT_EQ(r.trace.device.size(), 1u);
  EXPECT_EQ(r.strings[r.trace.device[0].name], "a\xEF\xBF\xBD");
}

}  // namespace
}  // namespace tk
