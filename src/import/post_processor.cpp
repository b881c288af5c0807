#include "import/tokenizer_parts.h"

namespace tk {
namespace {

// Around one text. More is no template, and could be repeated.
constexpr std::size_t most_ids = 4096;

// [[special ids], sequence, [special ids], ...]: what a template says for one sequence.
PostProcessor from_template(const json::Value& value) {
  struct Part {
    bool is_sequence;
    Ids ids;
  };
  std::vector<Part> parts;
  std::size_t n_sequences = 0, n_ids = 0;
  const auto specials = value.find("special_tokens");
  for (const json::Value& item : value["single"].elements()) {
    if (const auto sequence = item.find("Sequence")) {
      if (sequence.value()["id"].string() != "A")
        throw not_read(item, "a template for one text that names another");
      parts.push_back({true, {}});
      ++n_sequences;
      continue;
    }
    const json::Value name = item["SpecialToken"]["id"];
    if (!specials) throw value.error("has no special_tokens, and its template names one");
    parts.push_back({false, json::integers(specials.value()[name.string()]["ids"])});
    n_ids += parts.back().ids.size();
  }
  if (n_sequences != 1 || n_ids > most_ids)
    throw not_read(value, "a template without its text, with it twice, or of very many tokens");
  return [parts = std::move(parts)](const Ids& ids) {
    Ids out;
    for (const Part& part : parts) {
      const Ids& from = part.is_sequence ? ids : part.ids;
      out.insert(out.end(), from.begin(), from.end());
    }
    return out;
  };
}

// Both put one token before and one after: {"cls": ["<s>", 0], "sep": ["</s>", 2]}.
PostProcessor around(const json::Value& value) {
  auto id_of = [&](std::string_view name) {
    const json::Value pair = value[name];
    std::int64_t id = -1;
    for (const json::Value& item : pair.elements())
      if (!item.is_string()) id = item.integer();
    if (id < 0) throw pair.error("should be a token and its id");
    return id;
  };
  return [before = id_of("cls"), after = id_of("sep")](Ids ids) {
    ids.insert(ids.begin(), before);
    ids.push_back(after);
    return ids;
  };
}

}  // namespace

PostProcessor read_post_processor(const json::Value& value) {
  const std::string_view type = value["type"].string();
  if (type == "TemplateProcessing") return from_template(value);
  if (type == "BertProcessing" || type == "RobertaProcessing") return around(value);
  if (type == "ByteLevel")  // changes offsets only, which we do not keep
    return [](Ids ids) { return ids; };
  if (type == "Sequence") {
    std::vector<PostProcessor> steps;
    for (const json::Value& step : value["processors"].elements())
      steps.push_back(read_post_processor(step));
    return [steps = std::move(steps)](Ids ids) {
      for (const PostProcessor& step : steps) ids = step(std::move(ids));
      return ids;
    };
  }
  throw not_read(value, cat("the post-processor '", type, "'"));
}

}  // namespace tk
