// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Writing a file that a user named. Library and command do it in no other way.
#ifndef TIDEMARK_SRC_BASE_FILE_H
#define TIDEMARK_SRC_BASE_FILE_H

#include "tidemark/base.h"

typedef struct tide__file_work {
  tide_status (*write)(void* user, const tide_sink* sink);  // called once
  // Called with the name of the unfinished file before it exists, and with NULL when it is finished or
  // gone. In between a signal that ends the program may remove it. NULL: none.
  void (*guard)(const char* unfinished);
  void* user;
} tide__file_work;

// Replaces a regular file whole or, after a failure, not at all; it keeps its owner, group and mode. Links
// are followed, also to a file that does not exist, but not those that others put into a folder like /tmp.
// Devices and pipes are written to and stay.
// Errors: of `write`; TIDE_ERR_STATE with the errno, in a text that does not name the file.
tide_status tide__file_save(const char* path, const tide__file_work* work);

// A sink with errors in the same form.
tide_sink tide__file_sink(int descriptor);

#endif
