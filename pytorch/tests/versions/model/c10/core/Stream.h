// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A model of PyTorch's stream: a device and a number.
#pragma once

#include <c10/core/DataPtr.h>

namespace c10 {

using StreamId = int64_t;

class Stream {
public:
  Stream(Device on, StreamId number) : where(on), handle(number) {}
  Device device() const { return where; }
  DeviceIndex device_index() const { return where.index(); }
  StreamId id() const { return handle; }

private:
  Device where;
  StreamId handle;
};

}  // namespace c10
