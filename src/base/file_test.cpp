#include "base/file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error_test_util.h"

namespace tk {
namespace {

namespace fs = std::filesystem;

// A folder that goes away with the test.
struct Folder {
  fs::path path = fs::temp_directory_path() / cat("tokamak_file_test_", ::getpid());
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

TEST(File, WritesWholeFilesAndLeavesNothingElse) {
  const Folder folder;
  const fs::path file = folder.path / "a.txt";
  for (const std::string& text : {std::string("one"), std::string(), std::string(1 << 20, 'x')}) {
    write_file(file, text);
    EXPECT_EQ(read_file(file), text);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator()), 1);
}

TEST(File, AFileThatIsNotThereIsNamed) {  // TK0101
  EXPECT_EQ(code_of([] { return read_file("/nowhere/at/all"); }), "TK0101");
}

TEST(File, AFolderIsNotAFile) {  // TK0102
  EXPECT_EQ(code_of([] { return MappedFile::open("/"); }), "TK0102");
}

TEST(File, AFolderThatIsNotThereCannotBeWrittenInto) {  // TK0103
  EXPECT_EQ(code_of([] { write_file("/nowhere/at/all", "x"); }), "TK0103");
}

TEST(File, AFailedWriteKeepsTheOldAndNoPart) {  // TK0103
  const Folder folder;
  const fs::path target = folder.path / "taken";
  fs::create_directories(target / "full");  // a folder that has something in it can't be replaced
  EXPECT_EQ(code_of([&] { write_file(target, "x"); }), "TK0103");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator()), 1);
}

TEST(Error, TextHasWhatWhereAndHelp) {
  const UserError e = UserError("TK0102", "m").at("f.py", 3).in_module("a.b").note("n").help("h");
  EXPECT_STREQ(e.what(), "error[TK0102]: m\n  --> a.b (f.py:3)\n  note: n\n  help: h");
}

TEST(Error, NearestName) {
  const std::vector<std::string> names{"optimize", "run", "bench"};
  EXPECT_EQ(nearest("optimise", names), "optimize");
  EXPECT_EQ(nearest("xyzzyxyzzy", names), "");
}

}  // namespace
}  // namespace tk
