#include "ops/cost.h"

#include <algorithm>

namespace tk::ops {

double elements_of(const Type& type) { return static_cast<double>(type.numel().value()); }
double bytes_of(const Type& type) {
  return elements_of(type) * static_cast<double>(size_of(type.dtype));
}

Cost moved(const Args& args, double vector) {
  Cost c;
  for (int i = 0; i < args.n_inputs(); ++i)
    if (args.has(i)) c.read += bytes_of(args.in(i));
  for (const Type& t : args.op().infer(args)) {
    c.written += bytes_of(t);
    c.vector += vector * elements_of(t);
  }
  return c;
}

namespace {
Cost product(const Args& args, int left) {
  Cost c = moved(args, 0);
  const Type& a = args.in(left);
  const double k = a.rank() == 0 ? 1 : static_cast<double>(a.shape.back().value());
  c.cube = 2 * k * elements_of(args.op().infer(args)[0]);
  return c;
}
}  // namespace

Cost product_cost(const Args& args, const Load&) { return product(args, 0); }
Cost addmm_cost(const Args& args, const Load&) { return product(args, 1); }

Cost grouped_cost(const Args& args, const Load&) {
  Cost c = product(args, 0);
  const Type& w = args.in(1);
  if (w.rank() != 3) return c;
  const double all = bytes_of(w);
  const double groups = static_cast<double>(w.dim(0).value());
  const double rows =
      elements_of(args.in(0)) / static_cast<double>(args.in(0).shape.back().value());
  c.read -= all * (1 - std::min(1.0, rows / std::max(1.0, groups)));
  return c;
}

Cost picked_cost(const Args& args, const Load&) {
  Cost c;
  for (const Type& t : args.op().infer(args)) c.written += bytes_of(t);
  c.read = c.written;
  for (int i = 1; i < args.n_inputs(); ++i)
    if (args.has(i)) c.read += bytes_of(args.in(i));
  return c;
}

namespace {

// Keys that one of the last n of `last` positions sees, on average: causal, and of a window.
double keys_seen(double last, double n, double window) {
  const double first = std::max(1.0, last - n + 1);
  const double end = std::max(first, last);
  if (window <= 0 || window >= end) return (first + end) / 2;
  if (window <= first) return window;
  const double growing = (first + window) / 2 * (window - first + 1);
  return (growing + (end - window) * window) / (end - first + 1);
}

}  // namespace

Cost attention_cost(const AttentionWork& w) {
  Cost c;
  const double per_sequence = w.tokens / std::max(1.0, w.sequences);
  const double seen = keys_seen(w.kv_len, per_sequence, w.window);
  const double read = w.window > 0 ? std::min(w.kv_len, w.window + per_sequence - 1) : w.kv_len;
  c.cube = 2 * w.tokens * w.heads * seen * (w.dim + w.v_dim);
  c.vector = 5 * w.tokens * w.heads * seen;  // scale, maximum, exponential, sum, normalise
  const double width = w.same_kv ? w.dim : w.dim + w.v_dim;
  c.read = w.sequences * read * w.kv_heads * width * w.kv_bytes +
           w.tokens * w.heads * w.dim * w.kv_bytes;
  c.written = w.tokens * w.heads * w.v_dim * w.kv_bytes;
  return c;
}

}  // namespace tk::ops
