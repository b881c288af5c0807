// The NPU's view of a model as a table: chains, sites, operators, what decided.
#pragma once

#include "trial/blueprint.h"

namespace tk::cli {

void print_sites(const Blueprint& blueprint);
// Each chain with the sites that would replace it.
void print_chains(const Blueprint& blueprint);

}  // namespace tk::cli
