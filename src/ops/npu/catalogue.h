// What is known of torch_npu's operators, for people: those that are defined here, and the text of
// the document that an installed torch_npu brings along (_op_plugin_docs.py).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/op.h"

namespace tk {

struct OpEntry {
  std::string name;           // "npu_rms_norm"
  const OpDef* op = nullptr;  // null: the document alone has it
  std::string text;           // of the document; empty: it has no entry, or there is no document
};

struct OpCatalogue {
  std::string document;          // path; empty: none
  std::vector<OpEntry> entries;  // sorted by name
  bool is_documented(const OpEntry& e) const;
};

// The operators here, with the entries of a document where a path is given. A name that the
// document has twice counts once, the first time. Throws TK0101 where it cannot be read, TK0320
// where it has no entries.
OpCatalogue op_catalogue(const std::string& document = "");

const OpEntry* find_entry(const OpCatalogue& catalogue, std::string_view name);

// Entries whose name or text has all words, whatever their case: matches of the name first, else in
// the order of names.
std::vector<const OpEntry*> search_entries(const OpCatalogue& catalogue, std::string_view words);

// The first line of its text that is not empty, cut to 150 characters.
std::string headline(const OpEntry& entry);

// The names that are most like one that is not there: they share its words, or its letters.
std::vector<std::string> nearest_entries(const OpCatalogue& catalogue, std::string_view name,
                                         std::size_t at_most = 5);

}  // namespace tk
