// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Our own pages, mapped, touched and registered. No state is kept here.
#include "machine/pages.h"

#include "base/arith.h"
#include "base/error.h"
#include "base/sys.h"
#include "machine/machine.h"

// Does the memory of the machine exist? Not on dry.
static bool pages_exist(const tide_machine* machine) {
  return (machine->ops.flags & TIDE_MACHINE_NO_MEMORY) == 0;
}

bool tide__pages_can_lock(const tide_machine* machine) {
  return machine->ops.pinned_register != NULL && machine->ops.pinned_unregister != NULL;
}

// A thirty-second part of what is available stays for everybody else.
static tide_status require_room(uint64_t bytes) {
  const uint64_t left = tide__sys_available_bytes();
  TIDE_REQUIRE(bytes <= left - left / 32, TIDE_ERR_NO_MEMORY,
               "pinned pages: the system has %llu bytes left, not %llu", (unsigned long long)left,
               (unsigned long long)bytes);
  return TIDE_OK;
}

tide_status tide__pages_map(tide_machine* machine, uint64_t bytes, uint64_t* out) {
  const bool is_huge = bytes >= TIDE__PAGES_HUGE_BYTES;
  const uint64_t alignment = is_huge ? TIDE__PAGES_HUGE_BYTES : tide__sys_page_bytes();
  *out = 0;
  if (pages_exist(machine)) TIDE_TRY(require_room(bytes));
  const int error = pages_exist(machine) ? tide__sys_map_sparse(bytes, alignment, out)
                                         : tide__sys_reserve(bytes, alignment, 0, out);
  if (error != 0) {
    return TIDE_FAIL_NATIVE(TIDE_ERR_NO_MEMORY, error, "pinned pages: cannot map %llu bytes",
                            (unsigned long long)bytes);
  }
  if (!pages_exist(machine)) return TIDE_OK;
  if (is_huge) tide__sys_ask_huge_pages(*out, bytes);
  if (!tide__sys_copies_locked_pages()) tide__sys_share_with_children(*out, bytes, false);
  return TIDE_OK;
}

void tide__pages_share(tide_machine* machine, uint64_t address, uint64_t bytes, bool is_shared) {
  if (!pages_exist(machine) || !tide__sys_copies_locked_pages()) return;
  tide__sys_share_with_children(address, bytes, is_shared);
}

tide_status tide__pages_lock(tide_machine* machine, uint64_t address, uint64_t bytes, uint32_t threads) {
  if (pages_exist(machine)) tide__sys_touch(address, bytes, threads);
  return tide_machine_pinned_register(machine, tide__pointer(address), bytes);
}

tide_status tide__pages_unlock(tide_machine* machine, uint64_t address) {
  return tide_machine_pinned_unregister(machine, tide__pointer(address));
}

// Unmapping a part of a larger mapping fails if the process has too many mappings. Then at least the memory
// goes back.
void tide__pages_unmap(uint64_t address, uint64_t bytes) {
  if (tide__sys_release(address, bytes) != 0) (void)tide__sys_purge(address, bytes);
}
