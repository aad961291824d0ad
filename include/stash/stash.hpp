// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// All of the C++ API at once.

#include "stash/batch.hpp"
#include "stash/cpu.hpp"
#include "stash/csr.hpp"
#include "stash/dropout.hpp"
#include "stash/encoding.hpp"
#include "stash/error.hpp"
#include "stash/events.hpp"
#include "stash/execution.hpp"
#include "stash/memory.hpp"
#include "stash/planning.hpp"
#include "stash/pool.hpp"
#include "stash/relu.hpp"
#include "stash/size_query.hpp"
#include "stash/stashed_tensor.hpp"
#include "stash/status.hpp"
#include "stash/swap.hpp"
#include "stash/tensor_view.hpp"
#include "stash/version.hpp"
