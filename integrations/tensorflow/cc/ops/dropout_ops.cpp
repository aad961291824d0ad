// SPDX-License-Identifier: Apache-2.0
// Registration of dropout and its gradient.

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status dropout_shapes(InferenceContext* c) {
  ShapeHandle seed;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &seed));
  DimensionHandle unused;
  TF_RETURN_IF_ERROR(c->WithValue(c->Dim(seed, 0), 2, &unused));
  c->set_output(0, c->input(0));
  c->set_output(1, c->Vector(InferenceContext::kUnknownDim));
  return absl::OkStatus();
}

absl::Status dropout_gradient_shapes(InferenceContext* c) {
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &unused));
  c->set_output(0, c->input(0));
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("StashDropout")
    .Input("x: T")
    .Input("seed: int64")
    .Output("y: T")
    .Output("stored: uint8")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("rate: float")
    .Attr("tensor: string = ''")
    .SetShapeFn(dropout_shapes)
    .Doc(R"doc(
Dropout that stores one bit for each value.

x: The tensor.
seed: Two numbers, the seed and the step; the same two give the same decisions.
y: Values that are kept, times 1 / (1 - rate), and zeros; products of 16 bits are those of 32, rounded.
stored: Which values are kept.
rate: Share of the values that are dropped.
tensor: A name for the counters.
)doc");

REGISTER_OP("StashDropoutGrad")
    .Input("gradients: T")
    .Input("stored: uint8")
    .Output("backprops: T")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("rate: float")
    .Attr("tensor: string = ''")
    .SetShapeFn(dropout_gradient_shapes)
    .Doc(R"doc(
Gradient of StashDropout.

gradients: The gradients of y.
stored: What StashDropout stored.
backprops: The gradients of x.
rate: As of StashDropout.
tensor: A name for the counters.
)doc");
