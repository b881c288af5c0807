// The pages that show a Ledger to people. Everything in them is from the Ledger; nothing is
// computed here but layout.
#pragma once

#include <string>

#include "trial/ledger.h"

namespace tk {

// For the model's folder and for diffs.
std::string report_markdown(const Ledger& ledger);

// One self-contained page: works from disk without a network, light and dark, and without
// JavaScript for reading.
std::string report_html(const Ledger& ledger);

}  // namespace tk
