// FU-61: among sites that overlap the cheaper cover wins, wide or narrow.
#include "trial/future.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "npu/clock.h"

namespace tk {
namespace {

// A case of mla_prolog.tk by the name of its graph.
Graph case_of(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(std::string(TK_SOURCE_DIR) + "/src/moves/fuse/mla_prolog.tk").rdbuf();
  const std::size_t start = text.str().find("graph @" + name + "(");
  return parse_graph(text.str().substr(start, text.str().find("\n}\n", start) + 3 - start));
}

Future future(const std::string& name, const std::vector<std::string>& disabled = {}) {
  OptimizeOptions o;
  o.target = Target::a2;
  o.disabled = disabled;
  const NpuClock clock("a2");
  const Seconds seconds = [&](const Graph& g) {
    return clock.step(g, {1, 1, 65, 128}).step_ms() / 1e3;
  };
  return future_of(case_of(name), *find_move("absorb_mla"), Phase::decode, o, seconds);
}

TEST(Future, TheWideSiteWinsWhereItIsLegal) {
  const Future wide = future("prolog");
  EXPECT_TRUE(wide.moves.contains("fuse_mla_prolog"));
  EXPECT_FALSE(wide.moves.contains("fuse_latent_cache"));
  const Future narrow = future("prolog", {"fuse_mla_prolog"});
  EXPECT_TRUE(narrow.moves.contains("fuse_latent_cache"));
  EXPECT_LT(wide.seconds, narrow.seconds);
  EXPECT_EQ(only_in(wide, narrow), "fuse_mla_prolog");
}

TEST(Future, TheNarrowOnesDoWhereItIsNot) {
  const Future f = future("hidden");  // of 5120, which the prologue does not take
  EXPECT_FALSE(f.moves.contains("fuse_mla_prolog"));
  EXPECT_TRUE(f.moves.contains("fuse_latent_cache"));
}

}  // namespace
}  // namespace tk
