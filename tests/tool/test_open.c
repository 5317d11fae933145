// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Compressed files: limits on their decompressed size and on memory. Each file is read in a process of its
// own, whose memory is measured.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codec.h"
#include "t.h"
#include "tool.h"

#define MIB ((size_t)1 << 20)

static const tool_codec* const codecs[] = { &tool_codec_xz, &tool_codec_gzip, &tool_codec_zstd };
static const char* const codec_names[] = { "xz", "gzip", "zstd", NULL };

static const tool_codec* codec_of_variant(void) {
  size_t i = 0;
  while (strcmp(codec_names[i], t_variant()) != 0) i++;
  if (codecs[i]->start == NULL) t_skip("built without the library");
  return codecs[i];
}

// A file that begins with some bytes and continues with many repetitions of others.
typedef struct repeated {
  const char* head;
  size_t head_bytes;
  const char* part;
  size_t part_bytes;
  size_t bytes;  // of all repetitions
} repeated;

// A file without a name; its path is that of the descriptor.
typedef struct packed_file {
  int descriptor;
  size_t bytes;
  char path[64];
} packed_file;

static packed_file packed_open(void) {
  packed_file file = { 0 };
  char path[] = "/tmp/tide_open_XXXXXX";
  file.descriptor = mkstemp(path);
  T_CHECK(file.descriptor >= 0);
  T_EQ(unlink(path), 0);
  (void)snprintf(file.path, sizeof file.path, "/proc/self/fd/%d", file.descriptor);
  return file;
}

static void packed_add(packed_file* file, const tool_codec* codec, void* encoder, const void* data,
                       size_t bytes, bool is_last) {
  static unsigned char out[65536];
  tool_flow flow = { .in = data, .in_bytes = bytes, .is_last = is_last };
  tool_flow_state state = TOOL_FLOW_MORE;
  while (state == TOOL_FLOW_MORE && (flow.in_bytes > 0 || is_last)) {
    flow.out = out;
    flow.out_room = sizeof out;
    state = codec->step(encoder, &flow);
    T_CHECK(state != TOOL_FLOW_BAD);
    const size_t made = sizeof out - flow.out_room;
    T_EQ(write(file->descriptor, out, made), made);
    file->bytes += made;
  }
}

static packed_file packed_new(const tool_codec* codec, repeated what) {
  static char block[65536];
  packed_file file = packed_open();
  void* const encoder = codec->start(true);
  const size_t parts = sizeof block / what.part_bytes;
  T_CHECK(encoder != NULL);
  for (size_t i = 0; i < parts; i++) memcpy(block + i * what.part_bytes, what.part, what.part_bytes);
  packed_add(&file, codec, encoder, what.head, what.head_bytes, false);
  for (size_t done = 0; done < what.bytes; done += parts * what.part_bytes)
    packed_add(&file, codec, encoder, block, parts * what.part_bytes, false);
  packed_add(&file, codec, encoder, NULL, 0, true);
  codec->stop(encoder);
  return file;
}

// The exit status, and the peak of memory above that of a process that reads nothing, in bytes.
typedef struct outcome {
  int status;
  size_t bytes;
} outcome;

static size_t most_memory(void) {
  struct rusage usage;
  T_EQ(getrusage(RUSAGE_SELF, &usage), 0);
  return (size_t)usage.ru_maxrss * 1024;
}

static outcome read_apart(const char* path) {
  outcome out = { 0 };
  int ends[2];
  int ended = 0;
  T_EQ(pipe(ends), 0);
  const pid_t child = fork();
  T_CHECK(child >= 0);
  if (child == 0) {
    tide_trace* trace = NULL;
    const size_t before = most_memory();
    out.status = tool_trace_read(path, &trace);
    out.bytes = most_memory() - before;
    _exit(write(ends[1], &out, sizeof out) == (ssize_t)sizeof out ? 0 : 1);
  }
  (void)close(ends[1]);
  T_EQ(read(ends[0], &out, sizeof out), sizeof out);
  (void)close(ends[0]);
  T_EQ(waitpid(child, &ended, 0), child);
  T_EQ(ended, 0);
  return out;
}

static void expect_cheap(const tool_codec* codec, repeated what) {
  packed_file file = packed_new(codec, what);
  const outcome out = read_apart(file.path);
  T_EQ(out.status, TOOL_USAGE);
  if (!T_HAS_SANITIZER) T_LT(out.bytes, 256 * MIB);
  (void)close(file.descriptor);
}

#define BOMB(head, part, bytes) \
  { head, sizeof(head) - 1, part, sizeof(part) - 1, bytes }

static const repeated bombs[] = {
  BOMB("\x80\x04(", "N", 72 * MIB),
  BOMB("\x80\x04}", "(", 72 * MIB),
  BOMB("\x80\x04", "]", 72 * MIB),
  BOMB("\x80\x04(", "K\x01", 72 * MIB),
  BOMB("\x80\x04N", "\x94", 72 * MIB),
  BOMB("\x80\x04}\x8c\x0d"
       "device_traces](](}\x8c\x06"
       "action\x8c\x05"
       "allocsq",
       "\0h", 72 * MIB),
  BOMB("{\"a\":[", "[],", 72 * MIB),
  BOMB("{\"a\":[", "0,", 72 * MIB),
};
static const char* const bomb_names[] = { "none",    "marks",      "lists",        "numbers", "memo",
                                          "entries", "json lists", "json numbers", NULL };

T_TEST_OVER(test_open__a_few_bytes_took_gigabytes, bomb_names) {
  t_one_variant(bomb_names);
  size_t i = 0;
  while (strcmp(bomb_names[i], t_variant()) != 0) i++;
  if (tool_codec_zstd.start == NULL) t_skip("built without the library");
  expect_cheap(&tool_codec_zstd, bombs[i]);
}

T_TEST_OVER(test_open__a_few_bytes_took_gigabytes_with_every_codec, codec_names) {
  expect_cheap(codec_of_variant(), bombs[0]);
}

// A recording may compress well: 16 MiB of equal bytes after a snapshot are accepted.
T_TEST_OVER(test_open__a_file_that_shrinks_well_is_read, codec_names) {
  packed_file file = packed_new(codec_of_variant(),
                                (repeated)BOMB("{\"segments\": [], \"device_traces\": []}", " ", 16 * MIB));

  T_EQ(read_apart(file.path).status, TOOL_DONE);

  (void)close(file.descriptor);
}

T_TEST_OVER(test_open__what_a_file_may_become_is_an_option, codec_names) {
  t_one_variant(codec_names);
  packed_file file = packed_new(codec_of_variant(), (repeated)BOMB("[]", " ", 72 * MIB));
  T_EQ(read_apart(file.path).status, TOOL_USAGE);

  tool_unpacked_allow(80 * MIB);
  T_EQ(lseek(file.descriptor, 0, SEEK_SET), 0);
  T_EQ(read_apart(file.path).status, TOOL_DONE);
  tool_unpacked_allow(MIB);
  T_EQ(lseek(file.descriptor, 0, SEEK_SET), 0);
  T_EQ(read_apart(file.path).status, TOOL_USAGE);

  (void)close(file.descriptor);
}
