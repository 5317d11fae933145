// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Page-locked memory made of our own pages. The pages are huge where the system permits it. Several threads
// touch them, and then the machine registers them. On cuda this is about ten times as fast as
// tide_machine_pinned_alloc(). The steps are separate calls, so that parts of a large range can be locked by
// several threads, and used while the rest is not locked yet:
//
//   uint64_t address = 0;
//   tide_status status = tide__pages_map(machine, 1 << 30, &address);
//   if (status == TIDE_OK) status = tide__pages_lock(machine, address, 64 << 20, 1);        // any thread
//   if (status == TIDE_OK) status = tide__pages_lock(machine, address + (64 << 20), ...);   // any other
//   ... copies; each must lie in one part that was locked by one call
//   status = tide__pages_unlock(machine, address);                                          // for each part
//   tide__pages_unmap(address, 1 << 30);
//
// pinned_range.h keeps account of the parts, and locks them ahead of their use.
#ifndef TIDEMARK_SRC_MACHINE_PAGES_H
#define TIDEMARK_SRC_MACHINE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "tidemark/machine.h"

#define TIDE__PAGES_HUGE_BYTES ((uint64_t)2 << 20)

// Can the machine lock pages of the caller at all?
bool tide__pages_can_lock(const tide_machine* machine);

// Maps new pages, which have no memory yet. `bytes` is a multiple of the page size. From 2 MiB on, the range
// begins at a multiple of 2 MiB, and huge pages are requested. On a machine without memory (dry), the
// addresses cannot be read or written.
// Errors: TIDE_ERR_NO_MEMORY if no addresses are left, or if the system cannot give that much memory. Then
//         touching it would kill the process.
tide_status tide__pages_map(tide_machine* machine, uint64_t bytes, uint64_t* out);

// Touches pages and locks them. The range lies in one of tide__pages_map(), consists of whole pages, and was
// not locked before. From 2 MiB on it should consist of whole multiples of 2 MiB, so that no two threads
// touch the same huge page. `threads`: see tide__sys_touch().
// Errors: those of tide_machine_pinned_register(). TIDE_ERR_CAPTURE: not now. With any other status locking
//         was refused, and the pages are ordinary memory.
// Threads: several may lock parts of one range at the same time.
tide_status tide__pages_lock(tide_machine* machine, uint64_t address, uint64_t bytes, uint32_t threads);

// Do children of fork() get these pages? The system copies locked pages for each child, which takes time and
// memory. Systems that do not copy them never share them. Whole pages; on a machine without memory a no-op.
void tide__pages_share(tide_machine* machine, uint64_t address, uint64_t bytes, bool is_shared);

// Unlocks what one call of tide__pages_lock() locked. No queued work may still use it.
// Errors: those of tide_machine_pinned_unregister(); the pages stay locked.
tide_status tide__pages_unlock(tide_machine* machine, uint64_t address);

// Gives addresses and memory back to the system. No part may be locked.
void tide__pages_unmap(uint64_t address, uint64_t bytes);

#endif
