// tk_moves FILE.pt2 [--sites] [MOVE...]: the canonical graph after the moves (all when none is
// named), or with --sites what each of them finds on the way. A tool for development.
#include <cstdio>
#include <map>
#include <string_view>

#include "base/error.h"
#include "import/pt2.h"
#include "import/pt2_archive.h"
#include "moves/canonical/canonical.h"
#include "moves/fuse/move.h"

namespace {

void print_sites(const tk::Move& move, const std::vector<tk::Site>& sites) {
  std::map<std::string, int> counts;
  for (const tk::Site& s : sites) {
    std::string key = tk::cat(s.class_key, ": ", name_of(s.verdict.kind), " ", s.verdict.reason);
    for (const std::string& note : s.verdict.notes) key += "; " + note;
    ++counts[key];
  }
  if (sites.empty()) {
    std::printf("%s: none\n", move.name.c_str());
    return;
  }
  for (const auto& [key, n] : counts) std::printf("%4d  %s\n", n, key.c_str());
}

}  // namespace

int main(int argc, char** argv) try {
  const char* file = nullptr;
  bool sites = false;
  std::vector<const tk::Move*> moves;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--sites") {
      sites = true;
    } else if (file == nullptr) {
      file = argv[i];
    } else if (const tk::Move* m = tk::find_move(arg)) {
      moves.push_back(m);
    } else {
      std::fprintf(stderr, "there is no move '%s'\n", argv[i]);
      return 2;
    }
  }
  if (file == nullptr) {
    std::fputs("usage: tk_moves FILE.pt2 [--sites] [MOVE...]\n", stderr);
    return 2;
  }
  if (moves.empty())
    for (const tk::Move& m : tk::all_moves()) moves.push_back(&m);
  const tk::Pt2Archive archive = tk::Pt2Archive::open(file);
  const tk::json::Document document = archive.graph();
  tk::Graph graph = tk::import_pt2(document.root(), {}).graph;
  tk::canonicalize(graph);
  for (const tk::Move* m : moves) {
    if (sites) print_sites(*m, m->find(graph, tk::Target::cpu));
    tk::apply_move(*m, graph);
    tk::verify(graph, m->name);
  }
  graph.erase_dead();
  if (!sites) std::fputs(tk::print(graph).c_str(), stdout);
  return 0;
} catch (const tk::UserError& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
