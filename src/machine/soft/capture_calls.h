// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The calls of the table that begin, end, examine and launch captures. Stands on stream.h and capture.h.
#ifndef TIDEMARK_SRC_MACHINE_SOFT_CAPTURE_CALLS_H
#define TIDEMARK_SRC_MACHINE_SOFT_CAPTURE_CALLS_H

#include "tidemark/machine.h"

tide_status tide__soft_capture_exchange(void* self, tide_capture_mode mode, tide_capture_mode* out_before);
tide_status tide__soft_capture_begin(void* self, int device, tide_stream stream, tide_capture_mode mode);
tide_status tide__soft_capture_end(void* self, int device, tide_stream stream, tide_launch* out);
tide_status tide__soft_capture_info(void* self, int device, tide_stream stream, tide_capture_state* out_state,
                                    uint64_t* out_id);
tide_status tide__soft_capture_terminals(void* self, int device, tide_stream stream, tide_node* nodes,
                                         size_t capacity, size_t* out_count);
tide_status tide__soft_node_dependencies(void* self, tide_node node, tide_node* nodes, size_t capacity,
                                         size_t* out_count);
tide_status tide__soft_launch(void* self, int device, tide_launch graph, tide_stream stream);
tide_status tide__soft_launch_free(void* self, tide_launch graph);

#endif
