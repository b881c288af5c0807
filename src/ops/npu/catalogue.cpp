#include "ops/npu/catalogue.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "base/error.h"
#include "base/file.h"

namespace tk {
namespace {

std::string lower(std::string_view text) {
  std::string s(text);
  std::transform(s.begin(), s.end(), s.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return s;
}

void skip_space(std::string_view text, std::size_t* at) {
  while (*at < text.size() && std::isspace(static_cast<unsigned char>(text[*at])) != 0) ++*at;
}

// The string literal between `quote`s at `at`; empty and `at` unmoved where there is none.
std::string_view quoted(std::string_view text, std::string_view quote, std::size_t* at) {
  if (text.substr(*at, quote.size()) != quote) return {};
  const std::size_t from = *at + quote.size();
  const std::size_t end = text.find(quote, from);
  if (end == std::string_view::npos) return {};
  *at = end + quote.size();
  return text.substr(from, end - from);
}

// Entries are _add_torch_npu_docstr("name", """text""").
std::map<std::string, std::string> document_entries(const std::string& path) {
  constexpr std::string_view call = "_add_torch_npu_docstr(";
  const std::string text = read_file(path);
  std::map<std::string, std::string> entries;
  for (std::size_t at = text.find(call); at != std::string::npos; at = text.find(call, at)) {
    at += call.size();
    skip_space(text, &at);
    const std::string_view name = quoted(text, "\"", &at);
    skip_space(text, &at);
    if (name.empty() || at >= text.size() || text[at] != ',') continue;
    skip_space(text, &++at);
    if (at < text.size() && (text[at] == 'r' || text[at] == 'R')) ++at;
    const std::string_view body = quoted(text, "\"\"\"", &at);
    if (!body.empty()) entries.emplace(name, body);
  }
  if (entries.empty())
    throw UserError("TK0320", cat(path, " has no entry of an operator"))
        .note("entries are _add_torch_npu_docstr(\"npu_x\", \"\"\"text\"\"\")")
        .help("give the _op_plugin_docs.py of a torch_npu package");
  return entries;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : text) {
    if (c != ' ' && c != '_') {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  if (!word.empty()) words.push_back(word);
  return words;
}

bool has_all(const std::string& text, const std::vector<std::string>& words) {
  return std::all_of(words.begin(), words.end(),
                     [&](const std::string& w) { return text.find(w) != std::string::npos; });
}

std::string text_of(const OpEntry& e) {
  std::string text = e.text;
  if (e.op == nullptr) return text;
  text += cat('\n', e.op->doc);
  if (const NpuFacts* facts = e.op->npu) {
    text += cat('\n', facts->group, '\n', facts->signature);
    for (const std::string_view note : facts->notes) text += cat('\n', note);
  }
  return text;
}

std::string_view first_line(std::string_view text) {
  std::size_t at = 0;
  skip_space(text, &at);
  std::string_view line = text.substr(at, text.find('\n', at) - at);
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0)
    line.remove_suffix(1);
  return line;
}

}  // namespace

bool OpCatalogue::is_documented(const OpEntry& e) const {
  return !e.text.empty() || (e.op != nullptr && e.op->npu != nullptr && e.op->npu->documented());
}

OpCatalogue op_catalogue(const std::string& document) {
  std::map<std::string, OpEntry> entries;
  for (const OpDef* op : all_ops())
    if (op->name.starts_with("npu.") && op->npu != nullptr) {
      const std::string name(op->name.substr(4));
      entries[name] = {name, op, ""};
    }
  if (!document.empty())
    for (auto& [name, text] : document_entries(document)) {
      OpEntry& e = entries[name];
      e.name = name;
      e.text = std::move(text);
    }
  OpCatalogue catalogue{document, {}};
  for (auto& [name, entry] : entries) catalogue.entries.push_back(std::move(entry));
  return catalogue;
}

const OpEntry* find_entry(const OpCatalogue& catalogue, std::string_view name) {
  for (const std::string_view prefix : {"torch_npu.", "torch.ops.npu.", "npu."})
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  // As it is copied from code: "npu_swiglu(x)", "npu_swiglu.default".
  name = name.substr(0, name.find_first_of("(."));
  const std::string wanted = lower(name);
  for (const OpEntry& e : catalogue.entries)
    if (lower(e.name) == wanted) return &e;
  return nullptr;
}

std::vector<const OpEntry*> search_entries(const OpCatalogue& catalogue, std::string_view words) {
  const std::vector<std::string> wanted = words_of(words);
  std::vector<const OpEntry*> named, others;
  for (const OpEntry& e : catalogue.entries) {
    if (has_all(lower(e.name), wanted)) {
      named.push_back(&e);
    } else if (has_all(lower(e.name + '\n' + text_of(e)), wanted)) {
      others.push_back(&e);
    }
  }
  named.insert(named.end(), others.begin(), others.end());
  return named;
}

std::string headline(const OpEntry& entry) {
  constexpr std::size_t longest = 150;
  const std::string_view own = entry.op == nullptr ? "" : entry.op->doc;
  std::string line(first_line(entry.text.empty() ? own : entry.text));
  if (line.size() <= longest) return line;
  std::size_t cut = longest - 3;
  while (cut > 0 && (static_cast<unsigned char>(line[cut]) & 0xC0U) == 0x80U) --cut;  // UTF-8
  return line.substr(0, cut) + "...";
}

std::vector<std::string> nearest_entries(const OpCatalogue& catalogue, std::string_view name,
                                         std::size_t at_most) {
  const std::vector<std::string> words = words_of(name);
  std::vector<std::pair<std::ptrdiff_t, std::string>> ranked;
  for (const OpEntry& e : catalogue.entries) {
    const std::vector<std::string> own = words_of(e.name);
    const auto shared = std::count_if(own.begin(), own.end(), [&](const std::string& w) {
      return w != "npu" && std::find(words.begin(), words.end(), w) != words.end();
    });
    const auto distance = static_cast<std::ptrdiff_t>(edit_distance(name, e.name));
    if (shared > 0 || distance <= 3) ranked.emplace_back(distance - 8 * shared, e.name);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::string> names;
  for (std::size_t i = 0; i < ranked.size() && i < at_most; ++i) names.push_back(ranked[i].second);
  return names;
}

}  // namespace tk
