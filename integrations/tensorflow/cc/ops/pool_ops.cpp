// SPDX-License-Identifier: Apache-2.0
// Registration of max pooling and its gradient.

#include <string>
#include <vector>

#include "kernels/pooling/pool_layer.hpp"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace {

using stash_tf::pool_attributes;
using stash_tf::pool_layer;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status make_layer(InferenceContext* c, absl::string_view op, pool_layer* layer) {
  pool_attributes attributes;
  TF_RETURN_IF_ERROR(attributes.read(c));
  return layer->make(op, attributes);
}

absl::Status pool_shapes(InferenceContext* c) {
  const absl::string_view op = "StashMaxPool";
  pool_layer layer;
  TF_RETURN_IF_ERROR(make_layer(c, op, &layer));
  ShapeHandle x;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), layer.rank(), &x));
  std::vector<std::int64_t> in;
  std::vector<std::int64_t> out;
  for (int axis = 0; axis < layer.rank(); ++axis)
    in.push_back(InferenceContext::Value(c->Dim(x, axis)));
  TF_RETURN_IF_ERROR(layer.output_dims(op, in, &out));
  std::vector<DimensionHandle> y;
  for (int axis = 0; axis < layer.rank(); ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    // The handle of x says more than -1: that the two sizes are the same one.
    const bool same = out[i] == in[i] && (axis == 0 || layer.is_channels(axis) || out[i] >= 0);
    y.push_back(same ? c->Dim(x, axis) : c->MakeDim(out[i]));
  }
  c->set_output(0, c->MakeShape(y));
  c->set_output(1, c->Vector(InferenceContext::kUnknownDim));
  c->set_output(2, c->Vector(layer.rank()));
  return absl::OkStatus();
}

absl::Status pool_gradient_shapes(InferenceContext* c) {
  pool_layer layer;
  TF_RETURN_IF_ERROR(make_layer(c, "StashMaxPoolGrad", &layer));
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), layer.rank(), &unused));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &unused));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(2), 1, &unused));
  ShapeHandle dx;
  TF_RETURN_IF_ERROR(c->MakeShapeFromShapeTensor(2, &dx));
  TF_RETURN_IF_ERROR(c->WithRank(dx, layer.rank(), &dx));
  c->set_output(0, dx);
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("StashMaxPool")
    .Input("x: T")
    .Output("y: T")
    .Output("stored: uint8")
    .Output("dims: int64")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("ksize: list(int) >= 4")
    .Attr("strides: list(int) >= 4")
    .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
    .Attr("explicit_paddings: list(int) = []")
    .Attr("data_format: {'NHWC', 'NCHW', 'NDHWC', 'NCDHW'} = 'NHWC'")
    .Attr("joint_relu: bool = false")
    .Attr("tensor: string = ''")
    .SetShapeFn(pool_shapes)
    .Doc(R"doc(
Max pooling that stores which tap won each window.

x: The map; with joint_relu the output of a ReLU.
y: The pooled map, as of MaxPool.
stored: The argmax, with joint_relu also whether the gradient passes the ReLU.
dims: The shape of x.
ksize: The window; 1 for batch and channels, at most 256 taps, 15 with joint_relu.
strides: Distance of the windows; 1 for batch and channels.
padding: As of MaxPool.
explicit_paddings: As of MaxPool, two numbers for each dimension; none without padding EXPLICIT.
data_format: Order of the dimensions; with a D the pooling is over three dimensions.
joint_relu: Nothing but this pooling reads x, and the gradient is to be that of the input of the ReLU.
tensor: A name for the counters.
)doc");

REGISTER_OP("StashMaxPoolGrad")
    .Input("gradients: T")
    .Input("stored: uint8")
    .Input("dims: int64")
    .Output("backprops: T")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("ksize: list(int) >= 4")
    .Attr("strides: list(int) >= 4")
    .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
    .Attr("explicit_paddings: list(int) = []")
    .Attr("data_format: {'NHWC', 'NCHW', 'NDHWC', 'NCDHW'} = 'NHWC'")
    .Attr("joint_relu: bool = false")
    .Attr("tensor: string = ''")
    .SetShapeFn(pool_gradient_shapes)
    .Doc(R"doc(
Gradient of StashMaxPool.

gradients: The gradients of y.
stored: What StashMaxPool stored.
dims: What StashMaxPool wrote.
backprops: The gradients of x; with joint_relu of the input of the ReLU before it.
ksize: As of StashMaxPool.
strides: As of StashMaxPool.
padding: As of StashMaxPool.
explicit_paddings: As of StashMaxPool.
data_format: As of StashMaxPool.
joint_relu: As of StashMaxPool.
tensor: A name for the counters.
)doc");
