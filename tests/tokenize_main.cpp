// tokenize FILE [--no-special] < lines > ids: for tests against the tokenizers package.
// Each line of the input is {"text": "..."}; each line of the output is
// {"ids": [...], "text": decoded, "raw": decoded with special tokens, "stream": decoded one by
// one}.
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "import/tokenizer.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: tokenize tokenizer.json [--no-special] < lines.json\n";
    return 2;
  }
  const bool special = argc < 3;
  try {
    const tk::Tokenizer tokenizer = tk::Tokenizer::from_file(argv[1]);
    for (std::string line; std::getline(std::cin, line);) {
      const auto in = nlohmann::json::parse(line);
      const auto ids = tokenizer.encode(in["text"].get<std::string>(), special);
      tk::TokenStream stream(tokenizer, false);
      std::string streamed;
      for (std::int64_t id : ids) streamed += stream.push(id);
      streamed += stream.finish();
      std::cout << nlohmann::json{{"ids", ids},
                                  {"text", tokenizer.decode(ids)},
                                  {"raw", tokenizer.decode(ids, false)},
                                  {"stream", streamed}}
                       .dump()
                << '\n';
    }
  } catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 2;
  }
}
