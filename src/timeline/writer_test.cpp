#include "timeline/writer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "timeline/csv.h"
#include "timeline/find.h"
#include "timeline/load.h"
#include "timeline/structure_modules.h"
#include "timeline/trace_json.h"

namespace tk {
namespace {

namespace fs = std::filesystem;

KernelText kernel(Ns start, Ns duration, const std::string& type, const std::string& module,
                  int stream, int step) {
  KernelText k;
  k.start = start;
  k.duration = duration;
  k.name = type + "_1";
  k.type = type;
  k.core = "CPU";
  k.in_shapes = "2,8;8,16";
  k.out_shapes = "2,16";
  k.in_types = "DT_BF16;DT_BF16";
  k.module = module;
  k.stream = stream;
  k.step = step;
  k.blocks = 2;
  return k;
}

// Two steps of a model of three layers, as the CPU engine gives them.
Timeline sample() {
  std::vector<KernelText> v;
  Ns at = 7;
  for (int step = 0; step < 2; ++step)
    for (int layer = 0; layer < 3; ++layer)
      for (const char* part : {"input_layernorm", "self_attn.q_proj", "self_attn.o_proj",
                               "post_attention_layernorm", "mlp.up_proj", "mlp.down_proj"}) {
        v.push_back(kernel(
            at, 1001, std::string(part).find("norm") == std::string::npos ? "matmul" : "rms_norm",
            "model.layers." + std::to_string(layer) + "." + part, 0, step));
        at += 1013;
      }
  return make_timeline(v, 1786102259963668360);
}

class Writer : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("tk_writer_" + std::to_string(getpid()));
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(Writer, ReadingGivesTheSameTimeline) {  // PF-52, KD "writing"
  const Timeline t = sample();
  write_profile(t, folder_, {"tokamak run", 3, "Level1"});
  const auto found = find_profiles(folder_);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 3);
  const Timeline r = load_profile(found[0], {});
  ASSERT_EQ(r.kernels.size(), t.kernels.size());
  EXPECT_EQ(r.steps, t.steps);
  EXPECT_EQ(r.origin.kind, "cpu");
  for (std::size_t i = 0; i < t.kernels.size(); ++i) {
    const Kernel &a = t.kernels[i], &b = r.kernels[i];
    EXPECT_EQ(t.absolute_us(a.start), r.absolute_us(b.start));
    EXPECT_EQ(a.duration, b.duration);
    EXPECT_EQ(t.text(a.type), r.text(b.type));
    EXPECT_EQ(t.text(a.name), r.text(b.name));
    EXPECT_EQ(t.text(a.core_text), r.text(b.core_text));
    EXPECT_EQ(t.text(a.module), r.text(b.module));
    EXPECT_EQ(t.text(a.in_shapes), r.text(b.in_shapes));
    EXPECT_EQ(t.text(a.out_shapes), r.text(b.out_shapes));
    EXPECT_EQ(a.stream, b.stream);
    EXPECT_EQ(a.step, b.step);
    EXPECT_EQ(a.blocks, b.blocks);
  }
  EXPECT_TRUE(r.trace.device.empty());  // the table has them
  const TraceRead trace = read_trace(found[0].trace, {});
  EXPECT_EQ(trace.trace.device.size(), t.kernels.size());
  EXPECT_EQ(r.step_times.size(), 2u);
}

TEST_F(Writer, SideFiles) {  // PF-50, PF-51
  std::vector<KernelText> v = {kernel(0, 1000, "matmul", "model.layers.0.mlp", 0, 4)};
  v.push_back(kernel(1000, 500, "hcom_allReduce_", "", no_stream, 4));
  v.back().core = "HCCL";
  const fs::path root = write_profile(make_timeline(v, 1786102259963668360), folder_,
                                      {"tokamak simulate a3", 0, "Level1"});
  const CsvTable details = CsvTable::read(root / "ASCEND_PROFILER_OUTPUT" / "operator_details.csv");
  ASSERT_EQ(details.rows.size(), 2u);
  EXPECT_EQ(details.rows[0][0], "matmul");
  EXPECT_EQ(details.rows[0][3], "N/A");  // the host's time is not known, so it is not 0
  EXPECT_EQ(details.rows[0][5], "1.000");
  const Timeline r = load_profile(find_profiles(folder_)[0], {});
  ASSERT_EQ(r.collectives.size(), 1u);
  EXPECT_EQ(r.collectives[0].step, "4");
  EXPECT_EQ(r.collectives[0].elapse, 500);
}

TEST_F(Writer, ModulePathsGiveTheLayers) {  // BD-50
  const Timeline t = sample();
  const StepOps ops = step_ops(t, 1, kernels_by_step(t)[1]);
  ASSERT_TRUE(has_modules(t, ops));
  const Structure s = module_structure(t, ops);
  ASSERT_TRUE(s.found) << s.reason;
  EXPECT_EQ(s.phases[0].layers, 3);
  ASSERT_EQ(s.components.size(), 6u);
  EXPECT_EQ(s.components[0].type, "self_attn");
  EXPECT_EQ(s.components[0].ops.size(), 3u);  // with its norm
  EXPECT_EQ(s.components[5].id, "main.L002.mlp.2");
  EXPECT_TRUE(s.pre.empty() && s.between.empty() && s.post.empty());
}

TEST_F(Writer, ProducerIsSaid) {
  EXPECT_THROW(write_profile(sample(), folder_, {}), InternalError);
}

}  // namespace
}  // namespace tk
