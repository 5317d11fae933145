// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A model of PyTorch's stream: a device and a number, which is the handle here.
#pragma once

#include <c10/core/DataPtr.h>

namespace c10 {

class Stream {
public:
  Stream(Device on, int64_t number) : where(on), handle(number) {}
  Device device() const { return where; }
  DeviceIndex device_index() const { return where.index(); }
  int64_t id() const { return handle; }

private:
  Device where;
  int64_t handle;
};

}  // namespace c10
