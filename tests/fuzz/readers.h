// The readers that are fuzzed. To add one is to add a row to the table in readers.cpp.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace tk::fuzz {

struct Reader {
  std::string name;
  std::vector<std::string> seeds;  // files in seeds/: whole ones, so that mutants get far
  // Reads the bytes as the product does, and uses what comes out. Throws UserError for what is
  // wrong with them, and nothing else.
  std::function<void(std::span<const std::byte>)> read;
};

const std::vector<Reader>& readers();

}  // namespace tk::fuzz
