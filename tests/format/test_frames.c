// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Whose code a frame is, and which line of a stack is the program's own.
#include "format/frames.h"

#include "base/heap.h"
#include "memory.h"

static tide_frames frames_of(const tide_trace* trace) {
  tide_frames frames;
  T_OK(tide__frames_init(&frames, tide_trace_names(trace), &tide__system_heap));
  return frames;
}

typedef struct known_frame {
  const char* file;
  const char* name;
  tide_frame_kind kind;
} known_frame;

static const known_frame known_frames[] = {
  { "/src/ceval.c", "eval", TIDE_FRAME_KIND_HIDDEN },
  { "??", "CapturedTraceback::gather", TIDE_FRAME_KIND_HIDDEN },
  { "??", "main", TIDE_FRAME_KIND_NATIVE },
  { "", "", TIDE_FRAME_KIND_NATIVE },
  { "/pytorch/aten/Empty.cpp", "at::empty(long)", TIDE_FRAME_KIND_NATIVE },
  { "/pytorch/c10/Alloc.cpp", "void c10::alloc<at::Tensor>(long)", TIDE_FRAME_KIND_NATIVE },
  { "/usr/include/c++/12/functional", "call(int)", TIDE_FRAME_KIND_NATIVE },
  { "/v/site-packages/ext/ext.cpp", "run", TIDE_FRAME_KIND_NATIVE },
  { "/home/me/ext.cpp", "run(at::Tensor)", TIDE_FRAME_KIND_OWN_NATIVE },
  { "/home/me/ext.cu", "format::run", TIDE_FRAME_KIND_OWN_NATIVE },
  { "<frozen importlib._bootstrap>", "_call", TIDE_FRAME_KIND_STANDARD },
  { "<eval_with_key>.7", "forward", TIDE_FRAME_KIND_STANDARD },
  { "/usr/lib/python3.12/threading.py", "run", TIDE_FRAME_KIND_STANDARD },
  { "/opt/lib64/python3.9/runpy.py", "run", TIDE_FRAME_KIND_STANDARD },
  { "/v/bin/torchrun", "<module>", TIDE_FRAME_KIND_STANDARD },
  { "/v/lib/python3.12/site-packages/torch/nn/conv.py", "forward", TIDE_FRAME_KIND_TORCH },
  { "/v/lib/python3.12/site-packages/torch/nn/module.py", "_call_impl", TIDE_FRAME_KIND_WRAPPER },
  { "/home/me/pytorch/torch/nn/modules/conv.py", "forward", TIDE_FRAME_KIND_TORCH },
  { "/tmp/torchinductor_me/ab/cab.py", "call", TIDE_FRAME_KIND_TORCH },
  { "/v/lib/python3.12/site-packages/torchvision/models/resnet.py", "forward", TIDE_FRAME_KIND_PACKAGE },
  { "/usr/lib/python3/dist-packages/numpy/core.py", "f", TIDE_FRAME_KIND_PACKAGE },
  { "/home/me/bin/train.py", "<module>", TIDE_FRAME_KIND_OWN },
  { "/home/me/torch/train.py", "<module>", TIDE_FRAME_KIND_OWN },
  { "<stdin>", "<module>", TIDE_FRAME_KIND_OWN },
  { "train.py", "<lambda>", TIDE_FRAME_KIND_OWN },
};
#define KNOWN_COUNT (sizeof known_frames / sizeof known_frames[0])

T_TEST(test_frames__know_whose_code_they_are) {
  tide_trace* const trace = memory_trace_new();
  uint64_t numbers[KNOWN_COUNT];
  for (size_t i = 0; i < KNOWN_COUNT; i++)
    numbers[i] = memory_add_frame(trace, known_frames[i].file, (int64_t)i, known_frames[i].name);
  tide_frames frames = frames_of(trace);

  for (size_t i = 0; i < KNOWN_COUNT; i++) {
    if (tide__frames_kind(&frames, numbers[i]) != known_frames[i].kind)
      T_FAIL("%s in %s is %d", known_frames[i].name, known_frames[i].file,
             (int)tide__frames_kind(&frames, numbers[i]));
  }
  T_EQ(tide__frames_kind(&frames, 0x7f0000001234), TIDE_FRAME_KIND_NATIVE);
  tide__frames_fini(&frames);
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// Sites

// A stack is a text of letters, one for each frame, innermost first.
static uint64_t frame_of_letter(tide_trace* trace, char letter, int64_t line) {
  switch (letter) {
    case 'h': return memory_add_frame(trace, "??", line, "torch::unwind::unwind()");
    case 'n': return memory_add_frame(trace, "??", line, "c10::alloc(long)");
    case 'a': return memory_add_frame(trace, "??", line, "at::_ops::empty::call(long)");
    case 's': return memory_add_frame(trace, "/usr/lib/python3.12/threading.py", line, "run");
    case 't': return memory_add_frame(trace, "/v/site-packages/torch/nn/conv.py", line, "forward");
    case 'w': return memory_add_frame(trace, "/v/site-packages/torch/nn/module.py", line, "_call_impl");
    case 'p': return memory_add_frame(trace, "/v/site-packages/vision/net.py", line, "forward");
    case 'c': return memory_add_frame(trace, "/me/ext.cpp", line, "run");
    default: return memory_add_frame(trace, "/me/train.py", line, "main");
  }
}

static void expect_site(const char* letters, size_t own, size_t called) {
  tide_trace* const trace = memory_trace_new();
  uint64_t stack[16];
  const size_t count = strlen(letters);
  for (size_t i = 0; i < count; i++) stack[i] = frame_of_letter(trace, letters[i], (int64_t)i);
  tide_frames frames = frames_of(trace);
  const tide_frames_site site = tide_frames_find_site(&frames, stack, count);
  if (site.own != own || site.called != called)
    T_FAIL("%s has its own line at %zu and calls %zu", letters, site.own, site.called);
  tide__frames_fini(&frames);
  tide_trace_free(trace);
}

T_TEST(test_frames__the_site_is_the_innermost_line_of_the_program) {
  expect_site("hnttpttptmm", 9, 4);  // behind it is the innermost line of a package
  expect_site("hnttwwm", 6, 3);
  expect_site("hnttmttm", 4, 3);  // or the outermost of PyTorch
  expect_site("hnnacm", 5, 4);    // or the program's own in C++
  expect_site("hnaanm", 5, 3);    // or the operator
  expect_site("hm", 1, 2);        // nothing is shown behind it
  expect_site("mm", 0, 2);
}

T_TEST(test_frames__the_site_without_a_line_of_the_program) {
  expect_site("nttptpts", 3, 2);  // the innermost of a package
  expect_site("nttttss", 4, 3);   // the outermost of PyTorch
  expect_site("nacn", 2, 1);      // C++ of the program
  expect_site("naan", 2, 1);      // the outermost operator
  expect_site("nnn", 0, 3);
  expect_site("h", 0, 1);
  expect_site("", 0, 0);
}

// ---------------------------------------------------------------------------------------------------
// Paths

static void expect_path(const tide_frames* frames, tide_trace* trace, const char* file, const char* want) {
  size_t bytes = 0;
  const char* const path = tide_frames_path(frames, memory_add_text(trace, file), &bytes);
  T_EQ(bytes, strlen(want));
  T_EQ(memcmp(path, want, bytes), 0);
}

T_TEST(test_frames__paths_are_those_inside_of_a_folder) {
  tide_trace* const trace = memory_trace_new();
  (void)memory_add_frame(trace, "/home/me/job/train.py", 1, "main");
  (void)memory_add_frame(trace, "/home/me/job/nets/a.py", 1, "main");
  (void)memory_add_frame(trace, "/home/me/jobs.py", 1, "main");
  (void)memory_add_frame(trace, "<stdin>", 1, "main");
  (void)memory_add_frame(trace, "/v/site-packages/x.py", 1, "main");
  tide_frames frames = frames_of(trace);

  expect_path(&frames, trace, "/home/me/job/nets/a.py", "job/nets/a.py");
  expect_path(&frames, trace, "/home/me/jobs.py", "jobs.py");
  expect_path(&frames, trace, "/elsewhere/b.py", "/elsewhere/b.py");
  expect_path(&frames, trace, "/v/site-packages/torch/nn/x.py", "torch/nn/x.py");
  expect_path(&frames, trace, "/usr/lib/python3.12/json/decoder.py", "json/decoder.py");
  expect_path(&frames, trace, "/pytorch/aten/Empty.cpp", "Empty.cpp");
  expect_path(&frames, trace, "<stdin>", "<stdin>");
  expect_path(&frames, trace, "??", "");
  tide__frames_fini(&frames);
  tide_trace_free(trace);
}

T_TEST(test_frames__long_paths_lose_their_first_folders) {
  tide_trace* const trace = memory_trace_new();
  char file[400] = "";
  for (size_t i = 0; i < 380; i++) file[i] = "\xc3\xa9"[i % 2];
  memcpy(file + 380, "/nets.py", 9);
  const uint64_t frame = memory_add_frame(trace, file, 3, "f");
  (void)memory_add_frame(trace, "other.py", 3, "f");
  tide_frames frames = frames_of(trace);
  char text[TIDE__FRAME_TEXT + 1] = "";

  const size_t bytes = tide__frames_text(&frames, frame, text);

  T_EQ(bytes, 255 - 1 + strlen(":3:f"));  // 255 bytes would begin within a letter
  T_EQ(memcmp(text, "\xc3\xa9\xc3\xa9", 4), 0);
  T_EQ(memcmp(text + bytes - 12, "/nets.py:3:f", 12), 0);
  tide__frames_fini(&frames);
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// The public interface

T_TEST(test_frames__of_a_trace) {
  tide_trace* const trace = memory_trace_new();
  const uint64_t stack[] = { memory_add_frame(trace, "/v/site-packages/torch/nn/conv.py", 9, "forward"),
                             memory_add_frame(trace, "/home/me/train.py", 7, "main") };
  tide_frames* frames = NULL;
  T_OK(tide_frames_new(trace, NULL, &frames));

  T_EQ(tide_frames_kind(frames, stack[0]), TIDE_FRAME_KIND_TORCH);
  T_EQ(tide_frames_kind(frames, stack[1]), TIDE_FRAME_KIND_OWN);
  T_EQ(tide_frames_kind(frames, memory_add_frame(trace, "later.py", 1, "f")), TIDE_FRAME_KIND_NATIVE);
  T_EQ(tide_frames_find_site(frames, stack, 2).own, 1);
  T_STR_EQ(tide_frames_path(frames, memory_add_text(trace, "/home/me/train.py"), NULL), "train.py");

  tide_frames_free(frames);
  tide_frames_free(NULL);
  T_STATUS(tide_frames_new(NULL, NULL, &frames), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_frames_new(trace, &(tide_heap){ 0 }, &frames), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(frames, NULL);
  tide_trace_free(trace);
}
