// Rules of cost that operators share (OpDef::cost). Sizes of the call are numbers.
#pragma once

#include "graph/op.h"

namespace tk::ops {

double bytes_of(const Type& type);
double elements_of(const Type& type);

// Everything read and written once; `vector` operations an output element.
Cost moved(const Args& args, double vector = 1);
// Matrix products whose left side is input `left`: 2 * elements of result 0 * its last axis.
Cost product_cost(const Args& args, const Load& load);  // left is input 0
Cost addmm_cost(const Args& args, const Load& load);    // left is input 1
// Rows in groups by [E, K, N] matrices (input 1): a matrix without rows is not read.
Cost grouped_cost(const Args& args, const Load& load);
// What is picked is read, and written.
Cost picked_cost(const Args& args, const Load& load);

// Attention over a cache: each sequence reads its keys and values once for all heads that share
// them, whatever the number of its queries.
struct AttentionWork {
  double tokens, heads, kv_heads, sequences;
  double dim, v_dim;     // of a head, rope part counted in dim
  double kv_bytes;       // of one element of the cache
  double kv_len;         // keys of a sequence, with its own new ones
  bool same_kv = false;  // the value is the key: the latent of absorbed MLA
  double window = 0;     // keys that a query sees at most; 0: all before it
};
Cost attention_cost(const AttentionWork& w);

}  // namespace tk::ops
