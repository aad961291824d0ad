// SPDX-License-Identifier: Apache-2.0
// Registration of StashEncode, StashDecode and StashDims.

#include <cstdint>
#include <string>
#include <vector>

#include "stash/c_api.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status encode_shapes(InferenceContext* c) {
  c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
  const ShapeHandle x = c->input(0);
  c->set_output(1, c->Vector(c->RankKnown(x) ? c->Rank(x) : InferenceContext::kUnknownDim));
  return absl::OkStatus();
}

absl::Status decode_shapes(InferenceContext* c) {
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &unused));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &unused));
  ShapeHandle y;
  TF_RETURN_IF_ERROR(c->MakeShapeFromShapeTensor(1, &y));
  c->set_output(0, y);
  return absl::OkStatus();
}

absl::Status stored_dims_shapes(InferenceContext* c) {
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &unused));
  std::vector<std::int64_t> dims;
  TF_RETURN_IF_ERROR(c->GetAttr("known", &dims));
  c->set_output(0, c->Vector(static_cast<std::int64_t>(dims.size())));
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("StashEncode")
    .Input("x: T")
    .Output("stored: uint8")
    .Output("dims: int64")
    .Attr("T: {float, half, bfloat16, bool} = DT_FLOAT")
    .Attr("encoding: string")
    .Attr("keep_nonzero: bool = false")
    .Attr("lower: float = 0")
    .Attr("upper: float = 6")
    .Attr("tensor: string = ''")
    .SetShapeFn(encode_shapes)
    .Doc(R"doc(
Stores a tensor in fewer bytes.

x: The tensor. A bool tensor takes the encoding sign_mask only.
stored: The encoded bytes, as few as this tensor needs.
dims: The shape of x.
encoding: Name of the encoding, such as "bitmap_fp8".
keep_nonzero: Narrow values that would round to zero become the smallest number with their sign.
lower: Bound of range_mask: its bit says whether lower < value < upper.
upper: Bound of range_mask.
tensor: A name for the counters.
)doc");

REGISTER_OP("StashDecode")
    .Input("stored: uint8")
    .Input("dims: int64")
    .Output("y: T")
    .Attr("T: {float, half, bfloat16, bool} = DT_FLOAT")
    .Attr("encoding: string")
    .Attr("keep_nonzero: bool = false")
    .Attr("tensor: string = ''")
    .SetShapeFn(decode_shapes)
    .Doc(R"doc(
The tensor that StashEncode stored.

stored: The bytes that StashEncode wrote.
dims: The shape that StashEncode wrote.
y: The tensor; for encodings that round, the rounded values.
encoding: The encoding of StashEncode.
keep_nonzero: As for StashEncode.
tensor: A name for the counters.
)doc");

REGISTER_OP("StashDims")
    .Input("stored: uint8")
    .Output("dims: int64")
    .Attr("T: {float, half, bfloat16, bool} = DT_FLOAT")
    .Attr("encoding: string")
    .Attr("known: list(int)")
    .Attr("tensor: string = ''")
    .SetShapeFn(stored_dims_shapes)
    .Doc(R"doc(
The shape of the tensor that StashEncode stored, where all but one of its dimensions are known: the number of bytes tells
the other one. For elements of lists, with which no second output can travel.

stored: The bytes that StashEncode wrote.
dims: The shape.
known: The shape, with -1 for the dimension that is not known.
T: Type of the dense tensor.
encoding: The encoding of StashEncode; not one whose size depends on the values.
tensor: A name for the counters.
)doc");
