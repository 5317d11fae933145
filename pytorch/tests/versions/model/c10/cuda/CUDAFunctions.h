// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A model of PyTorch's current device.
#pragma once

#include <c10/core/DataPtr.h>

namespace c10::cuda {
DeviceIndex current_device();
}
