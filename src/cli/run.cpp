#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/open.h"
#include "cli/trace.h"
#include "cpu/session.h"
#include "import/tokenizer.h"

namespace tk::cli {
namespace {

struct Flags {
  std::string model, trace, plan_cache;
  std::vector<std::string> prompts, ids;
  std::int64_t max_new = 128, seed = 0, top_k = 0;
  double temperature = 0, top_p = 1;
  int threads = 0;
  bool json = false, ignore_eos = false, stats = false;
};

// One prompt and its answer.
struct Answer {
  std::string prompt;
  std::vector<std::int64_t> ids;
  RequestId request = 0;
  std::vector<std::int64_t> tokens;
  std::string text;
  std::optional<TokenStream> stream;
  Finish finish = Finish::no;
};

std::vector<std::int64_t> parse_ids(const std::string& text) {
  std::vector<std::int64_t> ids;
  std::size_t start = 0;
  while (start <= text.size()) {
    const std::size_t end = std::min(text.find_first_of(", ", start), text.size());
    const std::string_view word = std::string_view(text).substr(start, end - start);
    start = end + 1;
    if (word.empty()) continue;
    std::int64_t v = 0;
    const auto [p, error] = std::from_chars(word.data(), word.data() + word.size(), v);
    if (error != std::errc() || p != word.data() + word.size())
      throw UserError("TK0705", cat("'", word, "' is no token id")).help("write --ids 1,450,2");
    ids.push_back(v);
  }
  return ids;
}

std::string_view name_of(Finish f) {
  switch (f) {
    case Finish::stop:
      return "stop";
    case Finish::length:
      return "length";
    case Finish::failed:
      return "failed";
    case Finish::no:
      return "no";
  }
  return "no";
}

std::vector<Answer> prepare_answers(const Flags& f, const std::optional<Tokenizer>& tokenizer,
                                    const Opened& model) {
  std::vector<Answer> answers;
  for (const std::string& p : f.prompts) {
    if (!tokenizer)
      throw UserError("TK0706", cat(model.folder.string(), " has no tokenizer.json"))
          .help("give token ids: --ids 1,450,2");
    Answer a;
    a.prompt = p;
    a.ids = tokenizer->encode(p);
    answers.push_back(std::move(a));
  }
  for (const std::string& text : f.ids) {
    Answer a;
    a.ids = parse_ids(text);
    answers.push_back(std::move(a));
  }
  if (answers.empty())
    throw UserError("TK0707", "there is no prompt").help("give -p TEXT or --ids 1,450,2");
  return answers;
}

int run(const Flags& f) {
  const auto start = std::chrono::steady_clock::now();
  Opened model = open_model(f.model, true, f.plan_cache);
  std::optional<Tokenizer> tokenizer;
  if (!model.tokenizer_path.empty() && !f.prompts.empty())
    tokenizer = Tokenizer::from_file(model.tokenizer_path);
  // Without a text to encode a tokenizer of another kind does no harm: ids are shown.
  if (!tokenizer && !model.tokenizer_path.empty()) {
    try {
      tokenizer = Tokenizer::from_file(model.tokenizer_path);
    } catch (const UserError& e) {
      fmt::print(stderr, "{}\n  the answer is shown as token ids\n", e.what());
    }
  }
  std::vector<Answer> answers = prepare_answers(f, tokenizer, model);
  RunnerOptions options;
  options.keep_packed = true;
  options.threads = f.threads;
  options.max_batch = std::max<std::int64_t>(
      1, std::min<std::int64_t>(32, static_cast<std::int64_t>(answers.size())));
  Session session(std::move(model.engine), options);
  TraceRecorder recorder;
  if (!f.trace.empty()) recorder.attach(&session.runner());
  RequestParams params;
  params.max_new_tokens = f.max_new;
  params.sampling.temperature = static_cast<float>(f.temperature);
  params.sampling.top_k = f.top_k;
  params.sampling.top_p = static_cast<float>(f.top_p);
  if (!f.ignore_eos) params.stop_ids = model.config.eos_ids;
  std::map<RequestId, Answer*> by_request;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    params.sampling.seed = static_cast<std::uint64_t>(f.seed) + i;
    Answer& a = answers[i];
    a.request = session.add(a.ids, params);
    by_request[a.request] = &a;
    if (tokenizer) a.stream.emplace(*tokenizer);
  }
  // One prompt streams as it comes; several are printed one after the other.
  const bool stream = answers.size() == 1 && !f.json;
  if (stream) fmt::print("{}", answers[0].prompt);
  std::int64_t n_prompt = 0;
  std::int64_t n_new = 0;
  double prefill_s = 0;
  double decode_s = 0;
  for (;;) {
    const StepReport report = session.step();
    if (report.idle) break;
    (report.run.phase == Phase::prefill ? prefill_s : decode_s) += report.run.seconds;
    if (report.run.phase == Phase::prefill) n_prompt += report.run.tokens;
    if (report.run.phase == Phase::decode) n_new += report.run.batch;
    for (const TokenEvent& e : report.events) {
      Answer& a = *by_request.at(e.request);
      a.finish = e.finish;
      if (e.finish == Finish::failed) throw UserError("TK0517", e.error);
      a.tokens.push_back(e.token);
      std::string piece;
      if (e.finish == Finish::stop) {
        // the stop token itself is not part of the text
      } else if (a.stream) {
        piece = a.stream->push(e.token);
      } else {
        piece = cat(a.tokens.size() > 1 ? " " : "", e.token);
      }
      if (e.finish != Finish::no && a.stream) piece += a.stream->finish();
      a.text += piece;
      if (stream) {
        fmt::print("{}", piece);
        std::fflush(stdout);
      }
    }
  }
  if (f.json) {
    nlohmann::ordered_json out = nlohmann::json::array();
    for (const Answer& a : answers)
      out.push_back({{"prompt", a.prompt},
                     {"prompt_ids", a.ids},
                     {"ids", a.tokens},
                     {"text", a.text},
                     {"finish", name_of(a.finish)}});
    fmt::print("{}\n", out.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (stream) {
    fmt::print("\n");
  } else {
    for (const Answer& a : answers) fmt::print("{}{}\n\n", a.prompt, a.text);
  }
  if (!f.trace.empty()) fmt::print(stderr, "trace: {}\n", recorder.write(f.trace, "tokamak run"));
  if (f.stats) {
    const double total =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    fmt::print(
        stderr,
        "prompt {} tokens, {:.1f} tokens/s; decode {} tokens, {:.1f} tokens/s; {:.2f} s in all\n",
        n_prompt, prefill_s > 0 ? static_cast<double>(n_prompt) / prefill_s : 0, n_new,
        decode_s > 0 ? static_cast<double>(n_new) / decode_s : 0, total);
  }
  return 0;
}

}  // namespace

void add_run(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<Flags>();
  CLI::App* c = app.add_subcommand("run", "Text in, text out");
  c->add_option("model", flags->model, "A folder that optimize made, or a captured model")
      ->required();
  c->add_option("-p,--prompt", flags->prompts, "A prompt; may be given several times")
      ->allow_extra_args(false);
  c->add_option("--ids", flags->ids, "Token ids instead of a prompt: 1,450,2")
      ->allow_extra_args(false);
  c->add_option("-n,--max-new-tokens", flags->max_new, "Length of an answer")
      ->check(CLI::Range(1, 1 << 28))
      ->capture_default_str();
  c->add_option("--temperature", flags->temperature, "0: greedy")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  c->add_option("--top-k", flags->top_k, "Only the k most likely tokens; 0: all")
      ->check(CLI::Range(0, 1 << 28));
  c->add_option("--top-p", flags->top_p,
                "Only the most likely tokens that together have this probability")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  c->add_option("--seed", flags->seed, "Of the sampling; prompt i uses seed + i")
      ->capture_default_str();
  c->add_option("--threads", flags->threads, "0: one per core")->check(CLI::Range(0, 1024));
  c->add_flag("--ignore-eos", flags->ignore_eos, "Go on after an end token");
  c->add_flag("--stats", flags->stats, "Speed, on stderr");
  c->add_option("--trace", flags->trace,
                "Write every launch below this folder, for `tokamak profile`");
  c->add_option("--plan-cache", flags->plan_cache,
                "Folder in which a captured model's rewritten graphs are kept for the next start");
  c->add_flag("--json", flags->json, "Ids and texts as JSON");
  c->footer("Example: tokamak run out/stories -p \"Once upon a time\" --temperature 0.8 --seed 7");
  c->callback([flags, exit_code] { *exit_code = run(*flags); });
}

}  // namespace tk::cli
