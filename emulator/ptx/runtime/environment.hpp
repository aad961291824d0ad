// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the environment says of the machine. A value that is no number ends the program with a message.

namespace stash::ptx {

/// STASH_PTX_MULTIPROCESSORS, or those of an H100.
int multiprocessors();

/// STASH_PTX_STREAMS=eager: streams do their work in the call that enqueues it, and not as late as they may.
bool streams_are_eager();

/// Before the first launch: the schedule is that of STASH_PTX_BLOCKS, STASH_PTX_TURN and STASH_PTX_SEED; what
/// ran will be written to the file that STASH_PTX_COUNTS names, as JSON, when the program ends.
void prepare_machine();

}  // namespace stash::ptx
