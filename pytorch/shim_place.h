// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Puts the allocator into PyTorch's two places, if nothing speaks against it: the pointer that torch.cuda
// uses, and the table of allocators that torch.accelerator uses.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <string>

namespace tidemark {

// Throws if another allocator is in place, if CUDA was already used, or if PyTorch's vtable is not the one
// that the shim was compiled for.
void check_place();

void place(c10::cuda::CUDACachingAllocator::CUDAAllocator* ours);

// Another allocator that has taken one of the places since; empty while both are ours.
std::string replaced_by();

// How many methods were found in the expected slots of PyTorch's vtable.
std::string slots_text();

// Registers with the lowest priority that suffices: a registration does nothing if another has a higher one.
template <typename Register, typename IsOurs> void register_with(const Register& set, const IsOurs& is_ours) {
  for (unsigned priority = 0; priority <= UINT8_MAX && !is_ours(); priority++) {
    set(static_cast<uint8_t>(priority));
  }
}

}  // namespace tidemark
