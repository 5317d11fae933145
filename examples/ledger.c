// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// ledger.h: the segments and blocks at the peak of reserved memory.
//
//   ledger [RECORDING]
#include "example.h"

static bool show_segment(void* user, const tide_ledger_segment* segment) {
  int* const left = user;
  (void)printf("  segment %#llx: %llu KiB, of which %llu KiB in use\n", (unsigned long long)segment->address,
               (unsigned long long)segment->bytes / 1024, (unsigned long long)segment->active_bytes / 1024);
  return --*left > 0;
}

int main(int argc, char** argv) {
  tide_trace* const trace = recording_open(argc, argv);
  tide_ledger* ledger = NULL;
  int left = 5;
  must(tide_ledger_new(trace, 0, &ledger));
  const tide_ledger_peaks peaks = tide_ledger_get_peaks(ledger);
  must(tide_ledger_seek(ledger, peaks.reserved.at));
  const tide_ledger_totals totals = tide_ledger_get_totals(ledger);
  (void)printf("after entry %llu: %llu KiB reserved, %llu KiB allocated\n", (unsigned long long)totals.at,
               (unsigned long long)totals.reserved_bytes / 1024,
               (unsigned long long)totals.allocated_bytes / 1024);
  tide_ledger_visit(ledger, show_segment, NULL, &left);
  tide_ledger_free(ledger);
  tide_trace_free(trace);
  return totals.reserved_bytes == peaks.reserved.bytes ? 0 : 1;
}
