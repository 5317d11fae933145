// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The policy `torch`. Uses the common part of the policies.
#ifndef TIDEMARK_SRC_DEVICE_TORCH_TORCH_H
#define TIDEMARK_SRC_DEVICE_TORCH_TORCH_H

#include "device/policy/policy.h"

extern const tide__policy tide__policy_torch;

#endif
