// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// quota.h: two members share the memory of a device by a ledger. Here both are in one process; usually they
// are in two. The first holds memory that nothing uses, and frees it when the second one asks.
#include <string.h>
#include <unistd.h>

#include "example.h"

// What a program has to do to give way: free memory, then say so. Its helper thread does that.
typedef struct program {
  _Atomic(tide_quota*) quota;
  _Atomic uint64_t idle_bytes;
} program;

static void program_trim(void* user, const tide_quota_ask* ask) {
  program* const it = user;
  const uint64_t idle = it->idle_bytes;
  const uint64_t bytes = ask->bytes < idle ? ask->bytes : idle;
  it->idle_bytes -= bytes;  // here an allocator gives memory back to its machine
  (void)tide_quota_give(it->quota, bytes);
  (void)printf("%s asks for %llu MiB; freed %llu MiB\n", ask->name, (unsigned long long)(ask->bytes / MIB),
               (unsigned long long)(bytes / MIB));
}

static bool member_print(void* user, const tide_quota_ledger* ledger, const tide_quota_member* member) {
  (void)user;
  if (member == NULL) return true;
  (void)printf("%s holds %llu of %llu MiB\n", member->name, (unsigned long long)(member->held_bytes / MIB),
               (unsigned long long)(ledger->total_bytes / MIB));
  return true;
}

static tide_quota* program_join(const char* ledger, const char* name, program* it) {
  tide_quota_options options = TIDE_QUOTA_OPTIONS_INIT;
  tide_quota* quota = NULL;
  options.ledger = ledger;
  options.name = name;
  options.total_bytes = 100 * MIB;  // of the ledger, if it is new
  options.on_ask = it != NULL ? program_trim : NULL;
  options.user = it;
  options.has_helper = it != NULL;  // it answers although the program does something else
  must(tide_quota_join(&options, &quota));
  return quota;
}

int main(void) {
  char folder[] = "/tmp/tidemark-example-XXXXXX";
  char ledger[64];
  program first = { NULL, 0 };
  if (mkdtemp(folder) == NULL) return 1;
  (void)snprintf(ledger, sizeof ledger, "%s/ledger", folder);  // a name such as "gpu0" is usual
  first.quota = program_join(ledger, "training", &first);
  must(tide_quota_take(first.quota, 90 * MIB));
  first.idle_bytes = 50 * MIB;
  tide_quota* const second = program_join(ledger, "generation", NULL);
  must(tide_quota_take(second, 40 * MIB));  // waits until the first one has freed 30 MiB
  must(tide_quota_read(ledger, member_print, NULL));
  tide_quota_leave(second);
  tide_quota_leave(first.quota);
  must(tide_quota_remove(ledger));
  return rmdir(folder) == 0 ? 0 : 1;
}
