// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// machine.h: a device in host memory. Work on a stream runs concurrently with the program, and an event
// orders two streams.
#include "example.h"

int main(void) {
  tide_host_options options = TIDE_HOST_OPTIONS_INIT;
  tide_device_info info = TIDE_DEVICE_INFO_INIT;
  tide_machine* machine = NULL;
  tide_stream writer = NULL;
  tide_stream reader = NULL;
  tide_event written = NULL;
  void* memory = NULL;
  char text[8] = "";
  options.capacity = 64 * MIB;
  must(tide_machine_new_host(&options, &machine));
  must(tide_machine_device_info(machine, 0, &info));
  (void)printf("%s: %llu MiB\n", info.name, (unsigned long long)(info.total_bytes / MIB));

  must(tide_machine_stream_new(machine, 0, TIDE_STREAM_NON_BLOCKING, 0, &writer));
  must(tide_machine_stream_new(machine, 0, TIDE_STREAM_NON_BLOCKING, 0, &reader));
  must(tide_machine_event_new(machine, 0, &written));
  must(tide_machine_raw_alloc(machine, 0, MIB, &memory));

  must(tide_machine_fill(machine, 0, writer, memory, 't', MIB));
  must(tide_machine_event_record(machine, 0, written, writer));
  must(tide_machine_stream_wait(machine, 0, reader, written));
  must(tide_machine_copy(machine, 0, reader, text, memory, sizeof text - 1));
  must(tide_machine_stream_synchronize(machine, 0, reader));
  (void)printf("%s\n", text);

  // The next call of this kind fails, so a program can be tested without a full device.
  const tide_fault fault = TIDE_FAULT_INIT;
  void* none = NULL;
  must(tide_machine_fault_add(machine, &fault));
  const bool has_failed = tide_machine_raw_alloc(machine, 0, MIB, &none) == TIDE_ERR_NO_MEMORY;
  const tide_call_stats stats = tide_machine_call_stats(machine, TIDE_CALL_RAW_ALLOC);
  (void)printf("%s: %llu calls, %llu failed\n", tide_call_name(TIDE_CALL_RAW_ALLOC),
               (unsigned long long)stats.calls, (unsigned long long)stats.failures);
  tide_machine_free(machine);
  return has_failed && text[0] == 't' ? 0 : 1;
}
