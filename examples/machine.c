// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// machine.h: devices of host memory. Streams run beside the program, an event orders two of them, and
// captured work is launched again and again. Then a fault, and the dry machine, whose time the program
// controls.
#include "example.h"

static tide_machine* host_new(void) {
  tide_host_options options = TIDE_HOST_OPTIONS_INIT;
  tide_device_info info = TIDE_DEVICE_INFO_INIT;
  tide_machine* machine = NULL;
  options.device_count = 2;
  options.capacity = 64 * MIB;
  must(tide_machine_new_host(&options, &machine));
  must(tide_machine_device_info(machine, 0, &info));
  (void)printf("%s: %llu MiB\n", info.name, (unsigned long long)(info.total_bytes / MIB));
  return machine;
}

// One stream fills memory of device 0, a second copies it to the program.
static bool order_streams(tide_machine* machine, void* memory) {
  tide_stream writer = NULL;
  tide_stream reader = NULL;
  tide_event written = NULL;
  char text[8] = "";
  must(tide_machine_stream_new(machine, 0, TIDE_STREAM_NON_BLOCKING, 0, &writer));
  must(tide_machine_stream_new(machine, 0, TIDE_STREAM_NON_BLOCKING, 0, &reader));
  must(tide_machine_event_new(machine, 0, &written));

  must(tide_machine_fill(machine, 0, writer, memory, 't', MIB));
  must(tide_machine_event_record(machine, 0, written, writer));
  must(tide_machine_stream_wait(machine, 0, reader, written));
  must(tide_machine_copy(machine, 0, reader, text, memory, sizeof text - 1));
  bool is_idle = false;
  while (!is_idle) must(tide_machine_stream_query(machine, 0, reader, &is_idle));  // or _synchronize, to wait
  (void)printf("%s\n", text);
  return text[0] == 't';
}

// A captured copy runs at each launch, and copies the memory as it is then. The pinned memory comes from a
// tide_memory, the kind of source that planned arenas take.
static bool launch_twice(tide_machine* machine, void* memory) {
  const tide_memory pinned = tide_machine_pinned_memory(machine, 0);
  tide_stream stream = NULL;
  tide_launch graph = NULL;
  void* copy = NULL;
  must(pinned.alloc(&pinned, MIB, 64, &copy));
  must(tide_machine_stream_new(machine, 0, 0, 0, &stream));
  must(tide_machine_capture_begin(machine, 0, stream, TIDE_CAPTURE_THREAD_LOCAL));
  must(tide_machine_copy(machine, 0, stream, copy, memory, MIB));
  must(tide_machine_capture_end(machine, 0, stream, &graph));
  for (uint8_t value = 1; value <= 2; value++) {
    must(tide_machine_fill(machine, 0, stream, memory, value, MIB));
    must(tide_machine_launch(machine, 0, graph, stream));
  }
  must(tide_machine_stream_synchronize(machine, 0, stream));
  const bool is_right = ((const uint8_t*)copy)[MIB - 1] == 2;
  must(tide_machine_launch_free(machine, graph));
  must(pinned.release(&pinned, copy));
  return is_right;
}

// A device writes to the memory of another one, if the two can be peers.
static void fill_peer(tide_machine* machine, void* memory) {
  bool is_possible = false;
  must(tide_machine_peer_query(machine, 1, 0, &is_possible));
  if (!is_possible) return;
  must(tide_machine_peer_enable(machine, 1, 0));
  must(tide_machine_fill(machine, 1, NULL, memory, 'p', MIB));
  must(tide_machine_device_synchronize(machine, 1));
  must(tide_machine_peer_disable(machine, 1, 0));
}

// A fault makes the next call of any kind fail, so a program can be tested without a full device.
static bool fail_once(tide_machine* machine) {
  const tide_fault fault = TIDE_FAULT_INIT;
  void* none = NULL;
  must(tide_machine_fault_add(machine, &fault));
  const bool has_failed = tide_machine_raw_alloc(machine, 0, MIB, &none) == TIDE_ERR_NO_MEMORY;
  tide_machine_fault_clear(machine);
  const tide_call_stats stats = tide_machine_call_stats(machine, TIDE_CALL_RAW_ALLOC);
  (void)printf("%s: %llu calls, %llu failed\n", tide_call_name(TIDE_CALL_RAW_ALLOC),
               (unsigned long long)stats.calls, (unsigned long long)stats.failures);
  return has_failed;
}

// On the dry machine work takes as long as the program says, and a held stream goes no further.
static bool control_time(void) {
  tide_machine* machine = NULL;
  tide_event event = NULL;
  bool is_done[2] = { true, false };
  must(tide_machine_new_dry(NULL, &machine));
  must(tide_machine_event_new(machine, 0, &event));
  must(tide_dry_hold(machine, 0, NULL, true));
  must(tide_dry_work(machine, 0, NULL, 1000000));
  must(tide_machine_event_record(machine, 0, event, NULL));
  must(tide_dry_advance(machine, 5000000));
  must(tide_machine_event_query(machine, event, &is_done[0]));
  must(tide_dry_finish(machine, event));
  must(tide_machine_event_query(machine, event, &is_done[1]));
  tide_machine_free(machine);
  return !is_done[0] && is_done[1];
}

int main(void) {
  tide_machine* const machine = host_new();
  void* memory = NULL;
  must(tide_machine_raw_alloc(machine, 0, MIB, &memory));
  bool is_right = order_streams(machine, memory);
  is_right = launch_twice(machine, memory) && is_right;
  fill_peer(machine, memory);
  is_right = fail_once(machine) && is_right;
  tide_machine_free(machine);
  return control_time() && is_right ? 0 : 1;
}
