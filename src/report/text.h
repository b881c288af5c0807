// Words and figures that both reports use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trial/ledger.h"

namespace tk::report {

std::string ms(double value);     // "0.123 ms"
std::string times(double ratio);  // "2.3x faster", "1.1x slower"; ratio is after / before
std::string count(double value);  // "134.5 M"
std::string bytes(double value);  // "1.5 GiB"
std::string error_text(const NumericCheck& check);  // "1.2e-06 of the largest, allowed 2e-04"
std::string attention_text(const CacheLayer& layer);
std::string decision_text(
    const LedgerRow& row);  // "kept", "rolled back", "not adaptable", "no site"

// Layers that are alike, with their number.
struct LayerKind {
  CacheLayer layer;
  int n;
};
std::vector<LayerKind> layer_kinds(const CacheSpec& cache);

// Launches of a step by kernel, longest first.
struct KernelShare {
  std::string kernel;
  int launches = 0;
  double us = 0;
  double bytes = 0;
};
std::vector<KernelShare> kernel_shares(const Ledger& ledger);

// "measured, median of 12", or "predicted; 9 of 10 of 25 published graph steps were off by ...".
std::string how(const Ledger& ledger, const Comparison& comparison);
// What a row of a capture has besides: its acceptance, and the ways to run the step.
std::vector<std::string> capture_lines(const LedgerRow& row);
// What a ratio of the trials is, with its interval: a sentence.
std::string ratio_text(const Ledger& ledger);
// "of the 10.2 GB/s that 2 threads read here"
std::string bandwidth_text(const Ledger& ledger);
// One or two sentences that say what came out.
std::string verdict_sentence(const Ledger& ledger);

}  // namespace tk::report
