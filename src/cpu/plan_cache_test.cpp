// The plan cache of GM-38: an unchanged key hits, each changed part misses, and a file that is
// damaged, of another version or another's is never used.
#include "cpu/plan_cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <random>

#include "base/error.h"
#include "base/file.h"

namespace tk {
namespace {

namespace fs = std::filesystem;

class PlanCacheTest : public testing::Test {
 protected:
  fs::path folder = fs::temp_directory_path() / cat("tokamak_plan_cache_test_", ::getpid());
  std::string key = plan_key_of_this_machine() + "model one\n";
  Graph graph = parse_graph(R"(
graph @f(%x: f32[T, 4]) {
  weight %w0: f32[4] "a"
  %0 = aten.mul(%x, %w0)
  return %0
})");

  void SetUp() override { fs::remove_all(folder); }
  void TearDown() override { fs::remove_all(folder); }

  fs::path stored() {
    PlanCache cache(folder);
    const Graph* g = &graph;
    cache.store(key, {&g, 1});
    EXPECT_EQ(cache.warning(), "");
    return cache.file_of(key);
  }
  // The warning of a find that must not succeed.
  std::string refused() {
    PlanCache cache(folder);
    EXPECT_FALSE(cache.find(key).has_value());
    return cache.warning();
  }
  void expect_whole() {
    PlanCache cache(folder);
    const auto found = cache.find(key);
    ASSERT_TRUE(found.has_value()) << cache.warning();
    ASSERT_EQ(found->size(), 1u);
    EXPECT_EQ(print((*found)[0]), print(graph));
  }
};

TEST_F(PlanCacheTest, gm_38_an_unchanged_key_gives_the_same_plan) {
  EXPECT_EQ(refused(), "");  // nothing there is no warning
  const fs::path file = stored();
  expect_whole();
  struct stat info{};
  ASSERT_EQ(::stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0700U);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
}

TEST_F(PlanCacheTest, gm_38_each_part_of_a_key_counts) {
  stored();
  for (std::string part : {"version ", "build ", "isa ", "user ", "model "}) {
    std::string other = key;
    const std::size_t at = other.find(part) + part.size();
    ASSERT_GE(at, part.size());
    other[at] = other[at] == 'x' ? 'y' : 'x';
    PlanCache cache(folder);
    EXPECT_FALSE(cache.find(other).has_value()) << part;
  }
  EXPECT_NE(plan_key_of_this_machine().find("build \n"), 0u);
  const std::string build = key.substr(key.find("build ") + 6);
  EXPECT_GE(build.find('\n'), 40u) << "the linker gave no build id";
}

TEST_F(PlanCacheTest, gm_38_a_file_of_another_key_is_not_used) {  // the same name, by bad luck
  const fs::path file = stored();
  key += "and more\n";
  fs::rename(file, PlanCache(folder).file_of(key));
  EXPECT_NE(refused().find("another model, setting, build or machine"), std::string::npos);
}

TEST_F(PlanCacheTest, gm_38_a_damaged_file_is_made_anew) {
  const fs::path file = stored();
  const std::string whole = read_file(file);
  std::mt19937 random(38);
  for (int i = 0; i < 300; ++i) {
    std::string bytes = whole;
    if (i % 2 == 0)
      bytes.resize(random() % whole.size());
    else
      bytes[random() % whole.size()] ^= static_cast<char>(1U << random() % 8);
    write_file(file, bytes);
    EXPECT_NE(refused().find("the plan is made anew"), std::string::npos) << i;
  }
  stored();
  expect_whole();
}

TEST_F(PlanCacheTest, gm_38_another_version_of_the_format_is_made_anew) {
  const fs::path file = stored();
  std::string bytes = read_file(file);
  bytes[bytes.find('1')] = '2';
  write_file(file, bytes);
  EXPECT_NE(refused().find("another version of the format"), std::string::npos);
}

TEST_F(PlanCacheTest, gm_38_a_whole_file_with_a_graph_that_is_none_is_made_anew) {
  const fs::path file = stored();
  const std::string bytes = read_file(file);
  const std::string rest = "9\nno graph.";
  const std::size_t start = bytes.find('\n') + 1;
  const std::string_view head(bytes.data(), start);
  char sum[17];
  std::snprintf(sum, sizeof sum, "%016llx",
                static_cast<unsigned long long>(fnv1a(rest, fnv1a(key))));
  write_file(file, cat(head, key.size(), " ", rest.size(), " ", sum, "\n", key, rest));
  EXPECT_NE(refused().find("TK0310"), std::string::npos);
}

TEST_F(PlanCacheTest, gm_38_what_others_can_write_is_refused_and_left_alone) {
  const fs::path file = stored();
  const std::string whole = read_file(file);
  ::chmod(file.c_str(), 0666);
  PlanCache cache(folder);
  EXPECT_FALSE(cache.find(key).has_value());
  EXPECT_NE(cache.warning().find("others may write to it (mode 666)"), std::string::npos);
  Graph other = parse_graph("graph @other(%x: f32[T]) {\n  return %x\n}\n");
  const Graph* g = &other;
  cache.store(key, {&g, 1});
  EXPECT_EQ(read_file(file), whole);
}

TEST_F(PlanCacheTest, gm_38_another_users_file_is_refused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const fs::path file = stored();
  ASSERT_EQ(::chown(file.c_str(), 12345, 0), 0);
  EXPECT_NE(refused().find("it belongs to user 12345"), std::string::npos);
}

TEST_F(PlanCacheTest, gm_38_links_pipes_and_folders_are_refused) {
  const fs::path file = stored();
  fs::rename(file, folder / "elsewhere");
  fs::create_symlink(folder / "elsewhere", file);
  EXPECT_NE(refused().find("the plan is refused"), std::string::npos);
  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);  // must not wait for a writer
  EXPECT_NE(refused().find("not a regular file"), std::string::npos);
  fs::remove(file);
  fs::create_directory(file);
  EXPECT_NE(refused().find("not a regular file"), std::string::npos);
}

TEST_F(PlanCacheTest, gm_38_a_folder_that_is_not_safe_is_an_error) {  // TK1505, TK0103
  const auto code = [](const fs::path& path) {
    try {
      PlanCache cache(path);
    } catch (const UserError& e) {
      return e.code();
    }
    return std::string("none");
  };
  fs::create_directory(folder);
  ::chmod(folder.c_str(), 0777);
  EXPECT_EQ(code(folder), "TK1505");
  ::chmod(folder.c_str(), 0700);
  EXPECT_EQ(code(folder), "none");
  write_file(folder / "file", "");
  EXPECT_EQ(code(folder / "file"), "TK1505");
  EXPECT_EQ(code(folder / "no" / "such"), "TK0103");
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(folder.c_str(), 12345, 0), 0);
    EXPECT_EQ(code(folder), "TK1505");
  }
}

TEST_F(PlanCacheTest, gm_38_a_plan_that_cannot_be_written_is_a_warning) {
  PlanCache cache(folder);
  fs::remove_all(folder);
  const Graph* g = &graph;
  cache.store(key, {&g, 1});
  EXPECT_NE(cache.warning().find("the plan is not kept"), std::string::npos);
}

// A graph whose file has some kilobytes.
Graph long_graph() {
  std::string text = "graph @f(%x: f32[T, 4]) {\n  %0 = aten.neg(%x)\n";
  for (int i = 1; i < 200; ++i) text += cat("  %", i, " = aten.neg(%", i - 1, ")\n");
  return parse_graph(text + "  return %199\n}\n");
}

TEST_F(PlanCacheTest, gm_38_a_file_cut_or_changed_anywhere_is_made_anew) {
  graph = long_graph();
  const fs::path file = stored();
  const std::string whole = read_file(file);
  ASSERT_GT(whole.size(), 4000u);
  for (std::size_t at = 0; at < whole.size(); at += 97) {
    write_file(file, whole.substr(0, at));
    EXPECT_NE(refused().find("the plan is made anew"), std::string::npos) << "cut at " << at;
    std::string bytes = whole;
    bytes[at] = static_cast<char>(~bytes[at]);
    write_file(file, bytes);
    EXPECT_NE(refused().find("the plan is made anew"), std::string::npos) << "changed at " << at;
    write_file(file, whole + std::string(at + 1, 'x'));
    EXPECT_NE(refused().find("the plan is made anew"), std::string::npos) << "longer by " << at;
  }
  EXPECT_EQ(stored(), file);
  expect_whole();
}

// The work of one of several processes: finds nothing or the whole plan, and never has to warn.
int find_and_store(const fs::path& folder, const std::string& key, const Graph& graph) {
  const std::string text = print(graph);
  for (int round = 0; round < 100; ++round) {
    PlanCache cache(folder);
    const auto found = cache.find(key);
    if (!cache.warning().empty()) return 1;
    if (found && (found->size() != 1 || print((*found)[0]) != text)) return 2;
    const Graph* g = &graph;
    cache.store(key, {&g, 1});
    if (!cache.warning().empty()) return 3;
  }
  return 0;
}

TEST_F(PlanCacheTest, gm_38_several_processes_fill_one_folder) {
  graph = long_graph();
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(find_and_store(folder, key, graph));
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0) << "1: a find warned, 2: another plan, 3: a store warned";
  }
  expect_whole();
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1)
      << "a half file is left";
}

TEST_F(PlanCacheTest, gm_38_a_full_disk_keeps_the_plan_that_is_there) {
  const fs::path file = stored();
  const std::string whole = read_file(file);
  graph = long_graph();
  // In a process of its own: a limit on the size of files stands for the end of the disk.
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(1);
    PlanCache cache(folder);
    const Graph* g = &graph;
    cache.store(key, {&g, 1});
    ::_exit(cache.warning().find("the plan is not kept") != std::string::npos ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "1: no limit could be set, 2: no warning";
  EXPECT_EQ(read_file(file), whole);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace tk
