#pragma once
/// \file
/// Everything at once.

#include "stash/batch.hpp"
#include "stash/cpu.hpp"
#include "stash/csr.hpp"
#include "stash/dropout.hpp"
#include "stash/encoding.hpp"
#include "stash/error.hpp"
#include "stash/execution.hpp"
#include "stash/pool.hpp"
#include "stash/relu.hpp"
#include "stash/status.hpp"
#include "stash/tensor_view.hpp"
#include "stash/version.hpp"
