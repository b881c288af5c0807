// tk_dump FILE [--allow-unknown] [--canonical]: the graph of a .pt2 in the text form. A tool for
// development.
#include <cstdio>
#include <string_view>

#include "base/error.h"
#include "import/pt2.h"
#include "import/pt2_archive.h"
#include "moves/canonical/canonical.h"

int main(int argc, char** argv) try {
  tk::ImportOptions options;
  const char* file = nullptr;
  bool canonical = false;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--allow-unknown") {
      options.allow_unknown = true;
    } else if (std::string_view(argv[i]) == "--canonical") {
      canonical = true;
    } else {
      file = argv[i];
    }
  }
  if (file == nullptr) {
    std::fputs("usage: tk_dump FILE.pt2 [--allow-unknown] [--canonical]\n", stderr);
    return 2;
  }
  const tk::Pt2Archive archive = tk::Pt2Archive::open(file);
  const tk::json::Document document = archive.graph();
  tk::Pt2Graph imported = tk::import_pt2(document.root(), options);
  if (canonical) tk::canonicalize(imported.graph);
  std::fputs(tk::print(imported.graph).c_str(), stdout);
  return 0;
} catch (const tk::UserError& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
