// Mutations of files: of bytes, of chunks, of the numbers that lengths are, and of JSON's tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tk::fuzz {

// SplitMix64: the same numbers on every machine (https://prng.di.unimi.it/splitmix64.c).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  std::size_t below(std::size_t n) { return n == 0 ? 0 : next() % n; }
  bool chance(unsigned in) { return below(in) == 0; }

 private:
  std::uint64_t state_;
};

// One of the seeds with one to eight mutations; some take parts of the other seeds. At most twice
// as long as the longest seed, and 4 KiB.
std::string mutated(const std::vector<std::string>& seeds, Random& random);

}  // namespace tk::fuzz
