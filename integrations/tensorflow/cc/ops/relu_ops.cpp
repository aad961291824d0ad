// SPDX-License-Identifier: Apache-2.0
// Registration of the gradients of ReLU, ReLU6 and leaky ReLU.

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status gradient_shapes(InferenceContext* c) {
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &unused));
  c->set_output(0, c->input(0));
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("StashReluGrad")
    .Input("gradients: T")
    .Input("stored: uint8")
    .Output("backprops: T")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("encoding: string")
    .Attr("tensor: string = ''")
    .SetShapeFn(gradient_shapes)
    .Doc(R"doc(
ReluGrad from a stored feature map.

gradients: The gradients of the output of the ReLU.
stored: The output of the ReLU as StashEncode wrote it; for a cast, with keep_nonzero.
backprops: The gradients of its input.
encoding: The encoding of StashEncode, one that keeps the sign.
tensor: A name for the counters.
)doc");

REGISTER_OP("StashRelu6Grad")
    .Input("gradients: T")
    .Input("stored: uint8")
    .Output("backprops: T")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("tensor: string = ''")
    .SetShapeFn(gradient_shapes)
    .Doc(R"doc(
Relu6Grad from a stored feature map.

gradients: The gradients of the output of the ReLU6.
stored: Its input or output as StashEncode wrote it with range_mask and the bounds 0 and 6.
backprops: The gradients of its input.
tensor: A name for the counters.
)doc");

REGISTER_OP("StashLeakyReluGrad")
    .Input("gradients: T")
    .Input("stored: uint8")
    .Output("backprops: T")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("encoding: string")
    .Attr("alpha: float")
    .Attr("tensor: string = ''")
    .SetShapeFn(gradient_shapes)
    .Doc(R"doc(
LeakyReluGrad from a stored feature map.

gradients: The gradients of the output of the leaky ReLU.
stored: Its input, or for alpha > 0 its output, as StashEncode wrote it; for a cast, with keep_nonzero.
backprops: The gradients of its input.
encoding: The encoding of StashEncode, one that keeps the sign.
alpha: Slope of the leaky ReLU below zero.
tensor: A name for the counters.
)doc");
