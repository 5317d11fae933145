// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory for other devices and other processes. Uses lanes, segments and the policy `tide`.
#ifndef TIDEMARK_SRC_DEVICE_SHARE_SHARE_H
#define TIDEMARK_SRC_DEVICE_SHARE_SHARE_H

#include "device/lane/lane.h"

// ---------------------------------------------------------------------------------------------------
// share.c

void tide__imports_close(tide_device_cache* device);

// ---------------------------------------------------------------------------------------------------
// offer.c

void tide__offers_close(tide_device_cache* device);

#endif
