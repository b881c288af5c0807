#include "timeline/kernel_csv.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace tk {
namespace {

class KernelCsv : public testing::Test {
 protected:
  Timeline read(const std::string& text, bool allow = false) {
    path_ = std::filesystem::temp_directory_path() /
            ("tk_kernel_csv_" + std::to_string(getpid()) + ".csv");
    std::ofstream(path_, std::ios::binary) << text;
    Timeline t;
    read_kernel_csv(path_, {allow}, t);
    return t;
  }
  std::string error_of(const std::string& text) {
    try {
      read(text);
    } catch (const UserError& e) {
      return e.code() + ": " + e.what();
    }
    return "no error";
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::filesystem::path path_;
};

const std::string good =
    "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Stream ID,Task ID,Input "
    "Shapes\n"
    "1,MatMul_1,MatMul,AI_CORE,1786102259963668.360\t,11.300,6,0,\"\"\"1,1024;64,160\"\"\"\n"
    "1,Cast,Cast,AI_VECTOR_CORE,1786102259963679.680\t,1.380,6,1,N/A\n";

TEST_F(KernelCsv, ReadsByName) {
  const Timeline t = read(good);
  ASSERT_EQ(t.kernels.size(), 2u);
  EXPECT_EQ(t.kernels[0].start, 0);
  EXPECT_EQ(t.kernels[1].start, 11320);
  EXPECT_EQ(t.text(t.kernels[0].in_shapes), "1,1024;64,160");
  EXPECT_EQ(t.kernels[1].in_shapes, 0u);
  EXPECT_EQ(t.kernels[0].stream, 6);
  EXPECT_EQ(t.absolute_us(t.kernels[1].start), "1786102259963679.680");
}

TEST_F(KernelCsv, OtherOrderExtraColumnsBomCrlfEmptyRowsQuotedNumbers) {
  const Timeline t = read(
      "\xEF\xBB\xBF"
      "Duration(us),extra,Name,\"Start Time(us)\",Type\r\n"
      "\"1.5\",x,\"a,b\",\"10.000\t\",T1\r\n"
      "\r\n,,,,\r\n"
      "2.5,\"y,z\",c,12.000,N/A\r\n");
  ASSERT_EQ(t.kernels.size(), 2u);
  EXPECT_EQ(t.text(t.kernels[0].name), "a,b");
  EXPECT_EQ(t.kernels[0].duration, 1500);
  EXPECT_EQ(t.kernels[1].start, 2000);
  EXPECT_EQ(t.text(t.kernels[1].type), "c");
  EXPECT_EQ(t.steps, std::vector<std::string>{"-"});
}

TEST_F(KernelCsv, OpSummaryNames) {  // BD-11
  const Timeline t = read(
      "Op Name,OP Type,Task Type,Task Start Time(us),Task "
      "Duration(us)\nx,MatMulV2,AI_CORE,5.000,1.000\n");
  EXPECT_EQ(t.text(t.kernels[0].type), "MatMulV2");
  EXPECT_EQ(t.kernels[0].core, Core::ai_core);
}

TEST_F(KernelCsv, NonUtf8NamesAreRead) {
  const Timeline t = read("Name,Start Time(us),Duration(us)\nab\xFF\xC0,1.000,1.000\n");
  EXPECT_EQ(t.text(t.kernels[0].name), "ab\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST_F(KernelCsv, MissingColumnsAreNamed) {
  const std::string e = error_of("Name,Type,Duration(us)\na,b,1\n");
  EXPECT_NE(e.find("TK0905"), e.npos) << e;
  EXPECT_NE(e.find("Start Time(us)"), e.npos) << e;
}

TEST_F(KernelCsv, CutFilesAreErrors) {
  EXPECT_NE(error_of(good.substr(0, good.size() - 30)).find("TK0906"), std::string::npos);
  EXPECT_NE(error_of(good.substr(0, good.find("64,160"))).find("TK0906"), std::string::npos);
  EXPECT_EQ(read(good.substr(0, good.size() - 30), true).kernels.size(), 1u);
}

TEST_F(KernelCsv, BadTimesAreDroppedUpToOnePercent) {  // KD-4
  std::string text = "Name,Start Time(us),Duration(us)\n";
  for (int i = 0; i < 200; ++i) text += "k," + std::to_string(i) + ".000,1.000\n";
  const Timeline t = read(text + "bad,N/A,1.0\n");
  EXPECT_EQ(t.kernels.size(), 200u);
  EXPECT_EQ(t.rows_dropped, 1u);
  EXPECT_EQ(t.dropped_lines, std::vector<std::size_t>{202});
  EXPECT_NE(error_of(text + "bad,N/A,1.0\nbad,1,-1\nbad,x,1\n").find("TK0907"), std::string::npos);
  EXPECT_NE(error_of("Name,Start Time(us),Duration(us)\n").find("TK0907"), std::string::npos);
  EXPECT_NE(error_of("").find("TK0905"), std::string::npos);
}

TEST(Normalized, Names) {  // BD-15
  EXPECT_EQ(normalized_name("", "HcomAllGather_612_0_1"), "HcomAllGather");
  EXPECT_EQ(normalized_name("N/A", "trans_TransData_0"), "TransData");
  EXPECT_EQ(normalized_name("MatMulV2", "x"), "MatMulV2");
  EXPECT_EQ(normalized_name("", "a/b_1"), "a/b_1");
  EXPECT_EQ(normalized_name("", "Cast"), "Cast");
}

}  // namespace
}  // namespace tk
