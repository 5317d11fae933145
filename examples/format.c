// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// format.h: reads a recording in any format and writes it in another one.
//
//   format [RECORDING [OUTPUT]]
#include "example.h"

int main(int argc, char** argv) {
  tide_trace* const trace = recording_open(argc, argv);
  size_t entries = 0;
  size_t segments = 0;
  (void)tide_trace_entries(trace, 0, &entries);
  (void)tide_trace_segments(trace, &segments);
  (void)printf("%zu entries, %zu segments\n", entries, segments);

  // Call sites at the peak, for flame graphs, on standard output.
  const tide_sink console = tide_sink_file(1);
  (void)fflush(stdout);
  must(tide_trace_write(trace, TIDE_FORMAT_FOLDED, &console));
  for (uint32_t i = 0; i < TIDE_FORMAT_COUNT; i++) {
    const tide_format_info info = tide_format_describe(i);
    (void)printf("%-10s .%-10s %s\n", info.name, info.ending, info.text);
  }

  // The ending of a file name decides its format.
  if (argc > 2) {
    const int format = tide_format_from_path(argv[2]);
    must(tide_trace_save(trace, argv[2]));
    (void)printf("%s is written as %s\n", argv[2], tide_format_describe((uint32_t)format).name);
  }
  tide_trace_free(trace);
  return entries > 0 ? 0 : 1;
}
