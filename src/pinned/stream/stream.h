// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The room `stream`: the streams that use a block while it is handed out, and blocks that wait for streams
// after their release. It calls the rooms `idle`, `segment` and `stats`.
#ifndef TIDEMARK_SRC_PINNED_STREAM_STREAM_H
#define TIDEMARK_SRC_PINNED_STREAM_STREAM_H

#include "pinned/idle/idle.h"

// ---------------------------------------------------------------------------------------------------
// uses.c

// Gives a use to a block whose handle has this generation; takes the record. False: the block was released
// meanwhile.
bool tide__pin_use_add(tide_pinned_cache* pinned, tide__pin* block, uint32_t generation, tide__wait* use);
// The fast path: the block has a spare record and no uses.
bool tide__pin_use_again(tide__pin* block, uint32_t generation, int device, tide_stream stream);
// Takes the uses of a block that was released; NULL: none.
tide__wait* tide__pin_uses_take(tide__pin* block);

// ---------------------------------------------------------------------------------------------------
// waits.c

void tide__pin_waits_init(tide_pinned_cache* pinned);
// Lets a released block wait for the uses in its waiter. Never fails: an event that cannot be recorded now is
// recorded later.
void tide__pin_wait(tide_pinned_cache* pinned, tide__pin* block);
// Makes blocks reusable whose work is done; or waits for all blocks that wait now.
tide_status tide__pin_poll(tide_pinned_cache* pinned);
tide_status tide__pin_drain(tide_pinned_cache* pinned);
// Tells the helper thread that there is something to do.
void tide__pin_helper_wake(tide_pinned_cache* pinned);

#endif
