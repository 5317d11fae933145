// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The `tidemark` command: what its verbs share. One file a verb.
#ifndef TIDEMARK_TOOL_TOOL_H
#define TIDEMARK_TOOL_TOOL_H

// A verb gets its own name as argv[0] and returns the exit status of the program.
int tool_machines(int argc, char** argv);

// The exit status for a wrong command line.
#define TOOL_USAGE 2

#endif
