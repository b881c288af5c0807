// The gated unit that tk.linear_glu and tk.grouped_linear_glu name, as kernels want it.
#pragma once

#include "cpu/kernels/common.h"
#include "graph/op.h"

namespace tk {

inline kernels::Glu glu_of(const EvalArgs& args) {
  const std::string& act = args.text("act");
  kernels::Glu g;
  g.act = act == "gelu"        ? kernels::Activation::gelu_erf
          : act == "gelu_tanh" ? kernels::Activation::gelu_tanh
                               : kernels::Activation::silu;
  g.clamped = act == "clipped";
  g.layout =
      args.flag("interleaved") ? kernels::GluLayout::interleaved : kernels::GluLayout::halves;
  g.limit = static_cast<float>(args.f64("limit"));
  g.alpha = static_cast<float>(args.f64("alpha"));
  g.up_offset = static_cast<float>(args.f64("up_offset"));
  return g;
}

}  // namespace tk
