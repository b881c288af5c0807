// The words in which patterns are written: aten's operators as functions and signs. One spelling
// each, that of the canonical form (moves/canonical/canonical.h).
#pragma once

#include "graph/rewrite.h"

namespace tk::fuse {

// Two tensors, either way round for + and *; alpha is 1.
Pat operator+(const Pat& a, const Pat& b);
Pat operator*(const Pat& a, const Pat& b);
Pat operator-(const Pat& a, const Pat& b);
Pat operator/(const Pat& a, const Pat& b);
// A tensor and a number.
Pat operator+(const Pat& a, const Const& c);
Pat operator*(const Pat& a, const Const& c);
Pat operator/(const Pat& a, const Const& c);

Pat unary(std::string op, const Pat& x);  // "aten.silu"
Pat square(const Pat& x);                 // x^2
Pat mean_last(const Pat& x);              // over the last axis, which stays as 1
Pat sum_last(const Pat& x);               // the same
Pat sum_last_dropped(const Pat& x);       // the last axis goes

// 1 / sqrt(mean(x^2) + eps) times x, in the three ways in which it is written.
Pat normed(const Pat& x, const Const& eps);

Pat cast(const Pat& x);        // to any dtype; the self-test casts to the first input's
Pat cast_up(const Pat& x);     // to f32
Pat maybe_cast(const Pat& x);  // cast or x itself
Pat maybe_up(const Pat& x);

// Any reshape; `shape` is what the self-test makes of the input's type.
Pat reshape(const Pat& x, std::function<SymDims(const Type&)> shape);

// The first (0) or second (1) half of the last axis; and the even (0) or odd (1) elements of it.
Pat half(const Pat& x, int which);
Pat stride2(const Pat& x, int which);
// Both halves, joined at the last axis.
Pat joined(const Pat& a, const Pat& b);

// True of nodes that keep all but one axis whole: axis `dim` of `node` is the last of its input.
bool is_last_axis(const Node& node, std::string_view attr = "dim");

// `v` as dtype: its own source when `v` is a cast from there, a new cast when needed.
Value* as_dtype(Builder& b, Value* v, DType dtype);

// Types for self-tests, the last axes first: f32 [2, 8] is type(DType::f32, {2, 8}).
Type type(DType dtype, std::initializer_list<Sym> shape);

// TK_REWRITE-like: a rewrite with its target operator.
Rewrite rewrite(std::string doc, std::string target);

}  // namespace tk::fuse
