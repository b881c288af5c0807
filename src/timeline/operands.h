// Shapes and types of a kernel as the profiler writes them, in numbers.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tk {

struct ShapeOperand {
  double elements = 1, bytes = 0;
  std::vector<std::int64_t> dims;
};

// "16,7168;7168" with "DT_BF16;FLOAT". False where a shape or type is not known.
bool operands_of(std::string_view shapes, std::string_view types, std::vector<ShapeOperand>& out);

double sum_bytes(const std::vector<ShapeOperand>& v);

// The batch of a product: the axis that three operands of rank 3 share; 1 without one, 0 where they
// should have one.
double batch_of(const std::vector<ShapeOperand>& in, const ShapeOperand& out);
// Multiplications and additions of a matrix product, by sizes only, so that transposed and blocked
// operands need no care: |A| |B| |out| is (batch^3) (M N K)^2. 0: not a plain product.
double operations_of(const std::vector<ShapeOperand>& in, const ShapeOperand& out);

}  // namespace tk
