// Files below one directory, all or none.
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "emit/emit.h"

namespace tk::emit {

namespace fs = std::filesystem;

namespace {

// An empty folder, or one that an emission wrote: the only ones that --force may take away.
bool is_ours(const fs::path& folder) {
  if (fs::is_empty(folder)) return true;
  const bool runs =
      fs::is_regular_file(folder / "infer.sh") || fs::is_regular_file(folder / "registry.patch");
  if (!runs || !fs::is_directory(folder / "config") || !fs::is_directory(folder / "models"))
    return false;
  for (const fs::directory_entry& e : fs::directory_iterator(folder / "models"))
    if (e.path().filename().string().starts_with("modeling_")) return true;
  return false;
}

}  // namespace

void save(const fs::path& folder, const Emitted& emitted, bool force) {
  const fs::path target = fs::absolute(folder).lexically_normal();
  const fs::path place = target.filename().empty() ? target.parent_path() : target;
  const bool exists = fs::exists(fs::symlink_status(place));
  if (exists && !force)
    throw UserError("TK1204", cat(folder.string(), " exists already"))
        .help("give another folder, or --force to put this one in its place");
  if (exists && !fs::is_directory(place))
    throw UserError("TK1204", cat(folder.string(), " is no folder")).help("give another name");
  if (exists && !is_ours(place))
    throw UserError("TK1204", cat(folder.string(), " holds files that no emission wrote"))
        .help("--force replaces a whole folder: give another one, or empty this one yourself");
  const fs::path beside = place.parent_path() / cat(".", place.filename().string(), ".", getpid());
  const fs::path old = beside.string() + ".old";
  try {
    for (const File& f : emitted.files) {
      const fs::path path = beside / f.path;
      fs::create_directories(path.parent_path());
      write_file(path, f.text);
      if (f.executable)
        fs::permissions(path,
                        fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec,
                        fs::perm_options::add);
    }
    if (exists) fs::rename(place, old);
    fs::rename(beside, place);
    if (exists) fs::remove_all(old);
  } catch (const fs::filesystem_error& error) {
    std::error_code ignored;
    if (exists && !fs::exists(place)) fs::rename(old, place, ignored);
    fs::remove_all(beside, ignored);
    throw UserError("TK0103", cat("cannot write ", folder.string(), ": ", error.code().message()));
  } catch (const UserError&) {
    std::error_code ignored;
    fs::remove_all(beside, ignored);
    throw;
  }
}

}  // namespace tk::emit
