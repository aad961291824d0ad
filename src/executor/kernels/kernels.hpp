// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The kernels that make_kernel returns, one function per group of ops.

#include <memory>

#include "executor/kernels/kernel_base.hpp"

namespace stash::executor {

using kernel_pointer = std::unique_ptr<op_kernel>;

kernel_pointer make_convolution_kernel(const kernel_setup& setup);
kernel_pointer make_dense_kernel(const kernel_setup& setup);
kernel_pointer make_activation_kernel(const kernel_setup& setup);
kernel_pointer make_max_pool_kernel(const kernel_setup& setup);
kernel_pointer make_mean_pool_kernel(const kernel_setup& setup);
kernel_pointer make_batch_norm_kernel(const kernel_setup& setup);
kernel_pointer make_sum_kernel(const kernel_setup& setup);
kernel_pointer make_dropout_kernel(const kernel_setup& setup);
kernel_pointer make_loss_kernel(const kernel_setup& setup);

}  // namespace stash::executor
